"""Registry of plugins: finding, loading and calling them.

Entry points are loaded one by one: a broken plugin is listed with its error and fails only the
runs that need it. Nothing here is global; tests make registries of their own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any

import pluggy
from pydantic import BaseModel

from pipeline_core import PROJECT
from pipeline_core.model_info import ModelInfo
from pipeline_core.suggestions import suggest


@dataclass(frozen=True)
class Plugin:
    """A plugin as `pipeline-core plugins` lists it.

    Attributes:
        name: Name of its entry point.
        target: Module that the entry point names.
        distribution: Package that it was installed with.
        version: Version of that package.
        hooks: Names of the hooks it implements.
        defaults: Those of the hooks that apply where no other plugin has them (`trylast`).
        model: Description of its model; None for plugins of observers and readers only.
        error: Why it cannot be used; None if it can.
        bases: Plugins without a model that do stages for models of its kind of data.
        deprecated: Features it uses that a later version will not have, with the cure.
        extensions: Packages in which other plugins add options to the sections of its model.
    """

    name: str
    target: str
    distribution: str
    version: str
    hooks: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    model: ModelInfo | None = None
    error: str | None = None
    bases: tuple[Plugin, ...] = ()
    deprecated: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """Top-level package, or module, of its entry point."""
        return self.target.partition(":")[0].partition(".")[0]


class Registry:
    """All plugins of an environment.

    Args:
        specs: Class of the hook specifications.
        version: Version of the specifications, major and minor, such as "1.0".
        builtin: Name and module of the plugins without entry points: the engine's own.
        points: Entry points to load; those of the installed packages if None.
    """

    def __init__(
        self,
        specs: type,
        version: str,
        builtin: Iterable[tuple[str, Any]],
        points: Iterable[EntryPoint] | None = None,
    ) -> None:
        self.hooks = tuple(name for name in vars(specs) if not name.startswith("_"))
        self.version = version
        self.manager = pluggy.PluginManager(PROJECT)
        self.manager.add_hookspecs(specs)
        for name, plugin in builtin:
            self.manager.register(plugin, name)
        points = entry_points(group=PROJECT) if points is None else points
        self.plugins = [self._load(point) for point in points]
        givers = [p for p in self.plugins if p.model is None and "sections" in p.hooks]
        for giver in sorted(givers, key=lambda p: not p.defaults):  # others may derive from these
            self._add_sections(giver)
        for plugin in self.plugins:
            for cure in plugin.deprecated:
                text = f"plugin {plugin.name!r} from {_describe_origin(plugin)}: {cure}"
                warnings.warn(text, FutureWarning, stacklevel=2)

    def get_model_info(self, name: str) -> ModelInfo:
        """Return the description of the model `name` by its plugin.

        Raises:
            ValueError: No plugin, two plugins, or a broken one has this name.
        """
        info = self._find_plugin(name).model
        assert info is not None
        return info

    def list_models(self) -> list[ModelInfo]:
        """Return all usable models."""
        return [plugin.model for plugin in self.plugins if plugin.model is not None]

    def select_hook(self, hook: str, model: str | None) -> Callable[..., Any]:
        """Return a hook that calls only the plugin of a model, the engine and the observers."""
        own = self._find_plugin(model).name if model is not None else None
        others = [
            self.manager.get_plugin(p.name)
            for p in self.plugins
            if p.model is not None and p.name != own
        ]
        return self.manager.subset_hook_caller(hook, others)

    def collect(self, hook: str) -> list[Any]:
        """Return the records that all usable plugins give to a hook: readers, figures."""
        return [record for records in getattr(self.manager.hook, hook)() for record in records]

    def compute_fingerprint(self, model: str) -> str:
        """Return a hash of the plugin's source and version: it changes when the plugin does."""
        return hash_source(self._find_plugin(model))

    def identify(self, model: str) -> dict[str, str]:
        """Return a plugin's identity for artifacts, as `identify_plugin` does."""
        return identify_plugin(self._find_plugin(model))

    def find_provider(self, hook: str, record: str) -> Plugin | None:
        """Return the installed plugin that gives a hook the record called `record`.

        Args:
            hook: Name of a hook without arguments, such as "readers".
            record: Name of the record.

        Returns:
            The plugin; None if the record is one of the engine's own, or there is none.
        """
        for plugin in self.plugins:
            if hook in plugin.hooks and plugin.error is None:
                records = getattr(self.manager.get_plugin(plugin.name), hook)()
                if any(given.name == record for given in records):
                    return plugin
        return None

    def _find_plugin(self, name: str) -> Plugin:
        owners = [p for p in self.plugins if p.model is not None and p.model.name == name]
        if len(owners) > 1:
            raise ValueError(
                f"two plugins are called {name!r}: from {_describe_origin(owners[0])} and from "
                f"{_describe_origin(owners[1])}; uninstall one of them"
            )
        if owners:
            return owners[0]
        broken = next((p for p in self.plugins if p.name == name and p.error), None)
        if broken:
            raise ValueError(
                f"plugin {name!r} from {_describe_origin(broken)} cannot be loaded: {broken.error}"
            )
        names = sorted({p.model.name for p in self.plugins if p.model is not None})
        raise ValueError(
            f"no plugin {name!r} is installed, only {', '.join(names) or 'none'}"
            f"{suggest(name, names)}"
        )

    def _load(self, point: EntryPoint) -> Plugin:
        origin = point.dist.name if point.dist else "unknown"
        version = point.dist.version if point.dist else "unknown"
        plugin = Plugin(point.name, point.value, origin, version)
        before = set(self.manager.get_plugins())
        try:
            return self._register(plugin, point.load())
        except Exception as error:  # noqa: BLE001 - any error of the plugin is listed
            for half_registered in self.manager.get_plugins() - before:
                self.manager.unregister(half_registered)
            return replace(plugin, error=f"{type(error).__name__}: {error}")

    def _register(self, plugin: Plugin, module: Any) -> Plugin:
        stated = getattr(module, "HOOKS_VERSION", None)
        if error := _explain_version(stated, self.version):
            return replace(plugin, error=error)
        # Names in pluggy are entry-point names; a second distribution with the same one gets a
        # suffix.
        taken = self.manager.has_plugin(plugin.name)
        name = f"{plugin.name} ({plugin.distribution})" if taken else plugin.name
        with warnings.catch_warnings(record=True) as deprecated:
            warnings.simplefilter("always")
            self.manager.register(module, name)
        callers = self.manager.get_hookcallers(module) or []
        hooks = tuple(caller.name for caller in callers)
        unknown = [hook for hook in hooks if hook not in self.hooks]
        if unknown:
            self.manager.unregister(module)
            later = f" (it is made for version {stated} of the hooks)" if stated else ""
            return replace(plugin, error=_explain_unknown_hook(unknown[0], self.hooks) + later)
        info = module.model() if "model" in hooks else None
        if error := _explain_model(info, hooks):
            self.manager.unregister(module)
            return replace(plugin, error=error)
        cures = tuple(dict.fromkeys(str(warning.message) for warning in deprecated))
        last = tuple(
            caller.name
            for caller in callers
            if any(one.plugin is module and one.trylast for one in caller.get_hookimpls())
        )
        return replace(plugin, name=name, hooks=hooks, defaults=last, model=info, deprecated=cures)

    def _add_sections(self, giver: Plugin) -> None:
        """Add the sections of a plugin that does stages for models of other plugins."""
        module: Any = self.manager.get_plugin(giver.name)
        try:
            extended = [
                _extend_model(plugin, giver, module.sections(plugin.model) or {})
                for plugin in self.plugins
                if plugin.model is not None
            ]
        except Exception as error:  # noqa: BLE001 - as in `_load`
            self.manager.unregister(name=giver.name)
            extended = [replace(giver, error=f"{type(error).__name__}: {error}")]
        by_name = {plugin.name: plugin for plugin in extended}
        self.plugins = [by_name.get(plugin.name, plugin) for plugin in self.plugins]


def _extend_model(plugin: Plugin, giver: Plugin, sections: Mapping[str, type[BaseModel]]) -> Plugin:
    """Return a plugin with the sections that another plugin gives to its model.

    Raises:
        ValueError: A section of a stage before training is not derived from the model's own.
    """
    info = plugin.model
    assert info is not None
    if not sections:
        return plugin
    if giver.defaults:
        model = replace(info, sections={**sections, **info.sections})
        return replace(plugin, model=model, bases=(*plugin.bases, giver))
    existing = info.section_models
    for name, options in sections.items():
        if name not in existing or not issubclass(options, existing[name]):
            base = existing[name].__qualname__ if name in existing else "no section"
            raise ValueError(
                f"sections() gives {options.__qualname__} for the section {name!r} of "
                f"{info.name!r}, which has {base}; derive it from that"
            )
    modules = [options.__module__ for options in sections.values()]
    packages = [module.rpartition(".")[0] or module for module in modules]
    return replace(
        plugin,
        model=replace(info, sections={**info.sections, **sections}),
        extensions=tuple(dict.fromkeys((*plugin.extensions, *packages))),
    )


def identify_plugin(plugin: Plugin) -> dict[str, str]:
    """Return a hash of a plugin's source, and the name and version of its distribution."""
    return {
        "fingerprint": hash_source(plugin),
        "distribution": plugin.distribution,
        "plugin_version": plugin.version,
    }


def hash_source(plugin: Plugin) -> str:
    """Return a hash of the source and version of all packages of a plugin's distribution.

    It covers plugins that do stages for its kind of data, and packages that extend its model.
    """
    digest = hashlib.sha256()
    for one in (plugin, *plugin.bases):
        digest.update(f"{one.distribution} {one.version}".encode())
        modules = (*_list_modules(one), *one.extensions)
        for path in [path for module in modules for path in find_source_files(module)]:
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _list_modules(plugin: Plugin) -> list[str]:
    """Return the top-level modules of a plugin's distribution, its own first.

    For this project's own distribution, only the plugin's module: the others are the engine and
    plugins that are independent of each other.
    """
    own = plugin.package
    if plugin.distribution.replace("_", "-") == PROJECT.replace("_", "-"):
        return [own]
    try:
        installed = distribution(plugin.distribution)
    except PackageNotFoundError:
        return [own]
    # The list of files of an editable installation names no sources, but setuptools records this.
    names = set((installed.read_text("top_level.txt") or "").split())
    names |= {
        path.parts[0].removesuffix(".py") for path in installed.files or () if path.suffix == ".py"
    }
    others = sorted(name for name in names - {own} if name.isidentifier())
    return [own, *(name for name in others if importlib.util.find_spec(name))]


def find_source_files(module: str) -> list[Path]:
    """Return the source files of a package or module, without importing it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    if spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations)))
        suffixes = {".py", ".c", ".yaml"}
        return sorted(
            p for p in root.rglob("*") if p.suffix in suffixes and "__pycache__" not in p.parts
        )
    return [Path(spec.origin)] if spec.origin else []


def _explain_unknown_hook(name: str, hooks: Sequence[str]) -> str:
    return f"implements a hook {name!r} that does not exist{suggest(name, hooks, 'hooks are')}"


def _explain_version(stated: Any, ours: str) -> str | None:
    """Return the reason why a plugin's version of the hooks is unusable; None if it is usable."""
    if stated is None:
        return None
    if not isinstance(stated, str) or not re.fullmatch(r"\d+\.\d+", stated):
        return (
            f"HOOKS_VERSION = {stated!r} is not a version of the hooks; write a string such as "
            f"{ours!r}"
        )
    if int(stated.partition(".")[0]) <= int(ours.partition(".")[0]):
        return None
    return (
        f"is made for version {stated} of the hooks, and this pipeline-core has {ours}; install a "
        "newer pipeline-core, or an older version of the plugin"
    )


def _explain_model(info: Any, hooks: Sequence[str]) -> str | None:
    """Return the error in a plugin's description of its model; None if there is none."""
    if info is None:
        return None
    if not isinstance(info, ModelInfo):
        return f"model() returned {type(info).__name__}, expected ModelInfo"
    both = [stage for stage in info.without if stage in hooks]
    if both:
        return f"omits the stage {both[0]!r} and implements it; remove one of the two"
    if "partition" in info.without and "train" not in hooks:
        return (
            "omits the stage 'partition', which the shared trainer needs; implement "
            "train(run), or leave the stage to the engine"
        )
    return None


def _describe_origin(plugin: Plugin) -> str:
    return f"{plugin.distribution} {plugin.version}"
