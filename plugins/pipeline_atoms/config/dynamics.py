"""Molecular dynamics: an entry of `infer.md` and `learn.md`."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from pipeline_atoms.config.limits import Copies
from pipeline_core.config.limits import require_memory
from pipeline_core.config.sections import Count, Positive, Section

_FRAME_BYTES: Final = 64
"""Bytes per frame of the observables, which are in memory when a run is summarized."""


class UncertaintyLimits(Section):
    """Largest uncertainty of molecular dynamics with a committee.

    Numbers are half widths of the calibrated 95 % interval of a force component, eV/Å, of the atom
    with the widest one.
    """

    flag_above: Positive | None = None
    """Limit above which a stored frame is flagged; null for twice the half width that 99 % of the
    validation split stay below: beyond it, there is little evidence that the interval is right."""
    stop_above: Positive | None = None
    """Limit above which a run stops, at whichever step; null to run to its end."""


class MolecularDynamics(Section):
    """One molecular-dynamics run."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    ensemble: Literal["nve", "nvt_langevin", "nvt_nose_hoover", "npt"] = "nve"
    steps: Count = 500
    timestep: Positive = 1.0
    """fs"""
    temperature: Positive = 300.0
    """K; also of the initial velocities."""
    friction: Positive = 0.01
    """Langevin: 1/fs."""
    damping: Positive = 100.0
    """Nosé-Hoover and NPT: time scale of the thermostat, fs."""
    pressure: float = 0.0
    """NPT: external pressure, GPa."""
    barostat_damping: Positive = 1000.0
    """NPT: time scale of the barostat, fs."""
    start: str = "test:0"
    """A sample of the dataset as split:number, or the path of a file that ASE can read."""
    repeat: Copies = (1, 1, 1)
    """Copies of the cell along its vectors."""
    every: Count = 10
    """Steps between two stored frames."""
    restart_every: Count = 1000
    """Steps between two checkpoints, from which an interrupted run resumes, bit-identically."""
    uncertainty: UncertaintyLimits | None = None
    """Limits for a committee (`members`), whose runs always store their uncertainty."""

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        n_frames = 1 + self.steps // self.every
        require_memory(
            n_frames * _FRAME_BYTES, f"observables of {n_frames:.3g} frames", "raise every"
        )
        return self
