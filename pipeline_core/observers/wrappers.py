"""Plugins of the engine that run around stages: locks, checks, records."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary

Around = Generator[None, Summary | None, Summary | None]
"""Wrapper of a stage: a generator that yields once, is sent the summary, and returns it."""

_HOOKS: Final = {"figures": "draw"}
"""Stages whose hook has another name."""


class StageWrappers:
    """A plugin with one wrapper for each of several stages.

    Args:
        around: Makes the wrapper from a run and the name of its stage.
        stages: Names of the stages.
        first: True to run outside of all other wrappers.
    """

    def __init__(
        self, around: Callable[[Any, str], Around], stages: Iterable[str], *, first: bool = False
    ) -> None:
        for stage in stages:
            setattr(self, _HOOKS.get(stage, stage), _wrap(around, stage, first))


def _wrap(around: Callable[[Any, str], Around], stage: str, first: bool) -> Callable[[Any], Around]:
    @hookimpl(wrapper=True, tryfirst=first)
    def wrapper(run: Any) -> Around:
        return (yield from around(run, stage))

    return wrapper
