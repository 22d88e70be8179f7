"""What a run of an experiment needs from its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from omfs_daemon.simulate.run_cases import Progress, SlurmArray


@dataclass(frozen=True, slots=True)
class ExperimentSetup:
    """Where an experiment reads, runs and writes.

    traces       directory of the recorded traces; None: the one that OMFS_TRACES of ``environment`` names
    out          directory of the results
    where        number of processes on this machine, or Slurm
    clock        gives seconds
    """

    traces: Path | None
    environment: Mapping[str, str]
    out: Path
    where: int | SlurmArray
    progress: Progress | None
    clock: Callable[[], float]
