"""The stand-in has nothing that PySlurm does not have, and PySlurm has what the adapter uses."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

from omfs_daemon.slurm.pyslurm.pyslurm_child import NEEDED, PySlurmJob
from tests.support.pyslurm_stand_in import pyslurm as stand_in
from tests.support.waiting import LIMIT

# As in releases 22.5.3, 24.11.0 and 25.11.2.
CALLS = {
    "Jobs.load": "(preload_passwd_info=False, frozen=False)",
    "Job.load": "(job_id)",
    "Job.hold": "(self, mode=None)",
    "Job.release": "(self)",
    "Job.requeue": "(self, hold=False)",
    "Job.suspend": "(self)",
    "Job.unsuspend": "(self)",
    "Job.modify": "(self, changes)",
    "Job.send_signal": "(self, signal, steps='children', hurry=False)",
    "Job.cancel": "(self)",
    "Job.notify": "(self, msg)",
    "Nodes.load": "(preload_passwd_info=False)",
    "Node.modify": "(self, changes)",
    "Partitions.load": "()",
}
NAMES = {"Job", "Jobs", "JobSubmitDescription", "Node", "Nodes", "Partitions", "RPCError", "__version__"}
CHANGED = ("admin_comment", "is_requeueable", "licenses", "nice", "required_nodes")

LIST = f"""
import json, pyslurm
attributes = {[*PySlurmJob._fields, "run_time"]!r}
print(json.dumps({{
    "missing": [name for name in {sorted(NAMES | set(CALLS))!r} if not eval("hasattr(pyslurm.%s, '__doc__')" % name)],
    "attributes": [name for name in attributes if not hasattr(pyslurm.Job, name)],
    "changed": [name for name in {CHANGED!r} if not hasattr(pyslurm.JobSubmitDescription, name)],
    "error": [name for name in ("errno", "msg") if not hasattr(pyslurm.RPCError(2017), name)],
}}))
"""
NOTHING_MISSING: dict[str, list[str]] = {"missing": [], "attributes": [], "changed": [], "error": []}


def without_types(signature: inspect.Signature) -> str:
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def test_the_stand_in_has_the_names_of_pyslurm_and_no_others() -> None:
    assert set(NEEDED) <= {*stand_in.__all__, "__version__"} <= NAMES
    calls = {
        f"{kind.__name__}.{name}": without_types(inspect.signature(getattr(kind, name)))
        for kind in (stand_in.Job, stand_in.Jobs)
        for name in vars(kind)
        if not name.startswith("_")
    }
    assert calls.items() <= CALLS.items()
    assert {name for name in CALLS if name.startswith("Job")} - set(calls) == {"Job.cancel", "Job.notify"}


def test_a_real_pyslurm_has_them_too(tmp_path: Path) -> None:
    """Where there is one: in this interpreter, or in the one that OMFS_PYSLURM_PYTHON names."""
    conf = tmp_path / "slurm.conf"  # without one, the import ends the interpreter
    conf.write_text("ClusterName=shape\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=main Nodes=n1\n")
    here = [sys.executable] if importlib.util.find_spec("pyslurm") else []
    named = [python] if (python := os.environ.get("OMFS_PYSLURM_PYTHON")) else []
    found = [
        subprocess.run(
            [python, "-c", LIST], env=os.environ | {"SLURM_CONF": str(conf)}, capture_output=True, timeout=LIMIT
        ).stdout
        for python in (*here, *named)
    ]
    assert [json.loads(printed) for printed in found] == [NOTHING_MISSING for _ in found]
