"""Where recorded traces are stored, and which archive offers them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omfs_daemon.errors import ConfigError

VARIABLE = "OMFS_TRACES"

_PARALLEL_WORKLOADS = "the Parallel Workloads Archive, https://www.cs.huji.ac.il/labs/parallel/workload/"
_ALEA_URGENT = "the simulator alea-urgent-sim of Agung et al. (2021), as its job logs in Standard Workload Format"
_LUMOS = "DIR-LAB lumos, https://github.com/DIR-LAB/lumos"

# File names without .gz; an archive may offer them with or without.
_OFFERED = {
    "SDSC-DS-2004-2.1-cln.swf": _PARALLEL_WORKLOADS,
    "LANL-CM5-1994-4.1-cln.swf": _PARALLEL_WORKLOADS,
    "CEA-Curie-2011-2.1-cln.swf": _PARALLEL_WORKLOADS,
    "KTH-SP2-1996-2.1-cln.swf": _PARALLEL_WORKLOADS,
    "hpc2n-excerpt.swf": f"the simulator Alea as its excerpt of HPC2N (the whole trace: {_PARALLEL_WORKLOADS})",
    "dwd-2020-09-17.swf": _ALEA_URGENT,
    "sx-ace-2019.swf": _ALEA_URGENT,
    "mira-2018.csv": _LUMOS,
}


def trace(name: str, directory: Path | None, environment: Mapping[str, str]) -> Path:
    """The file of this name in ``directory``, else in the directory that OMFS_TRACES names.

    ConfigError if neither is given or the file is not there; it names the archive that offers it.
    """
    if directory is None:
        if not environment.get(VARIABLE):
            raise ConfigError(f"{name} is needed: say with --traces DIR or {VARIABLE} where it lies{_hint(name)}")
        directory = Path(environment[VARIABLE])
    path = directory / name
    if not path.is_file():
        raise missing(path)
    return path


def missing(path: Path) -> ConfigError:
    """The error for a missing file."""
    return ConfigError(f"{path}: no such file{_hint(path.name)}")


def _hint(name: str) -> str:
    archive = _OFFERED.get(name.removesuffix(".gz"))
    return "" if archive is None else f"; it is offered by {archive}"
