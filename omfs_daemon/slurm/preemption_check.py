"""Check what the preemption methods and node licenses need of Slurm's settings; each finding has a fix. Pure.

The rules come from slurm.conf(5) and from measurements on Slurm 22.05 (docs/node-licenses.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from ClusterShell.RangeSet import RangeSet, RangeSetException

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.preempt_methods import MethodTraits
from omfs_daemon.protocol.exit_codes import HOLD_CODES, REQUEUE_EXIT_HOLD
from omfs_daemon.slurm.gateway import LicenseRow
from omfs_daemon.slurm.node_licenses import NodeLicense
from omfs_daemon.slurm.settings_check import Finding, Level, kill_wait

_ENOUGH = 10  # so many times what all nodes have is never short
_SHOWN = 5
_MEMORY, _DEVICES = "memory", "devices"


def requeue_exit_hold(values: Mapping[str, str], launched: Collection[str]) -> list[Finding]:
    """``launched``: the methods of omfs-run that any class may use; without any there is nothing to check."""
    if not launched:
        return []
    subject, names, codes = "RequeueExitHold", ", ".join(sorted(launched)), REQUEUE_EXIT_HOLD
    if _codes(values.get("RequeueExit", "")).intersection(HOLD_CODES):
        what = f"RequeueExit has some of {codes} too: a job preempted by {names} would start again by itself"
        return [Finding(Level.FAIL, subject, what, f"take {codes} out of RequeueExit, and scontrol reconfigure")]
    if _codes(values.get(subject, "")).issuperset(HOLD_CODES):
        return [Finding(Level.OK, subject, f"a job preempted by {names} is requeued and held")]
    what = f"a job preempted by {names} would end as FAILED, its checkpoint unused"
    return [Finding(Level.FAIL, subject, what, f"RequeueExitHold={codes}, and scontrol reconfigure")]


def timeouts(values: Mapping[str, str], seconds: Mapping[str, float]) -> list[Finding]:
    """``seconds``: how long a victim that is requeued may take, by the key that says so."""
    killed = kill_wait(values)
    return [
        Finding(
            Level.FAIL,
            key,
            f"{limit:g} s, but a victim that ignores SIGTERM keeps its nodes for KillWait ({killed:g} s): "
            "the preemption is given up first, and the victim's work is lost in vain",
            f"{key} of more than {killed:g}, or a smaller KillWait",
        )
        for key, limit in seconds.items()
        if limit <= killed
    ]


def job_output(values: Mapping[str, str], leaving: Collection[str]) -> list[Finding]:
    """sbatch(1), --open-mode: without it, a requeued job's output is truncated unless JobFileAppend is set.

    ``leaving``: the methods that any class may use and after which a job starts again.
    """
    if not leaving or values.get("JobFileAppend", "0") != "0":
        return []
    what = "Slurm truncates the output of a requeued job unless it was submitted with --open-mode=append"
    return [Finding(Level.WARN, "JobFileAppend", what, "JobFileAppend=1, and scontrol reconfigure")]


def cgroups(values: Mapping[str, str], launched: Collection[str], on_nodes: Collection[str]) -> list[Finding]:
    """Whether methods of omfs-run and omfs-node were tried with the cgroups that this site uses.

    Those of omfs-run were, with version 1 (tests/end_to_end/test_cgroups.py); scontrol shows which plug-in is set.
    """
    plugins = [name for name in ("ProctrackType", "TaskPlugin") if "cgroup" in values.get(name, "")]
    tried = {*launched} if values.get("CgroupPlugin", "") == "cgroup/v1" else set()
    untried = sorted({*launched, *on_nodes} - tried)
    if not plugins or not untried:
        return []
    what = f"{' and '.join(f'{name}={values[name]}' for name in plugins)}: untested with {', '.join(untried)}"
    fix = (
        "preempt a job of yours once by each of them, and see that it continues (docs/omfs-run.md, For administrators)"
    )
    return [Finding(Level.WARN, "cgroups", what, fix)]


def node_license_findings(
    node_licenses: Sequence[NodeLicense], nodes: Sequence[Node], licenses: Iterable[LicenseRow]
) -> list[Finding]:
    """Whether slurm.conf has the licenses that the configuration names."""
    rows = {row.name: row for row in licenses}
    return [_node_license(node_license, nodes, rows) for node_license in node_licenses]


def unknown_licenses(error: Exception) -> Finding:
    return Finding(Level.FAIL, "node licenses", str(error), "check that Slurm answers: scontrol show licenses")


def plug_in_findings(node_licenses: Sequence[NodeLicense], plugin_node_licenses: str, plugin_any: str) -> list[Finding]:
    """Whether job_submit.lua guards them: ``node_licenses`` and ``any_licenses`` of its omfs_job_submit.conf."""
    if not node_licenses:
        return []
    subject = "node licenses in the plug-in"
    names = [node_license.license for node_license in node_licenses]
    any_names = [node_license.any for node_license in node_licenses if node_license.any]
    unguarded = [name for name in names if name not in _listed(plugin_node_licenses)]
    unplaced = [name for name in any_names if name not in _listed(plugin_any)]
    what, fix = [], []
    if unguarded:
        what.append(f"the owner of a job can give up {', '.join(unguarded)} while the job still uses it")
        fix.append(f"node_licenses={','.join(names)}")
    if unplaced:
        what.append(f"jobs with {', '.join(unplaced)} start before omfsd has chosen a node")
        fix.append(f"any_licenses={','.join(any_names)}")
    if not what:
        return [Finding(Level.OK, subject, "owners cannot change the node licenses of their jobs")]
    return [Finding(Level.FAIL, subject, "; ".join(what), f"{' and '.join(fix)} in omfs_job_submit.conf")]


def grants(
    values: Mapping[str, str],
    node_licenses: Sequence[NodeLicense],
    nodes: Sequence[Node],
    frees: Mapping[str, Collection[str]],
) -> list[Finding]:
    """What Slurm would keep although a method frees it; ``frees``: the kinds by method, of all methods in use."""
    return [*_memory(values, node_licenses, frees), *_devices(node_licenses, nodes, frees)]


def _node_license(node_license: NodeLicense, nodes: Sequence[Node], rows: Mapping[str, LicenseRow]) -> Finding:
    subject, pattern, any_name = f"node license {node_license.name}", node_license.license, node_license.any
    found = {node.name: rows[node_license.on(node.name)] for node in nodes if node_license.on(node.name) in rows}
    if not found:
        example = ",".join(f"{node_license.on(node.name)}:N" for node in nodes[:2])
        what = f"slurm.conf has no license {pattern}: Slurm refuses jobs that ask for it"
        return Finding(Level.FAIL, subject, what, f"Licenses={example} for each node that has it, N of each")
    total = sum(row.total for row in found.values())
    enough = f"Licenses={any_name}:{max(9999, _ENOUGH * total)}"
    if any_name and any_name not in rows:
        what = f"slurm.conf has no license {any_name}, with which jobs ask for {node_license.name} on any node"
        return Finding(Level.FAIL, subject, what, f"{enough} besides the others")
    if any_name and rows[any_name].total < _ENOUGH * total:
        what = f"{rows[any_name].total} of {any_name} may run out while a node still has {node_license.name}"
        return Finding(Level.WARN, subject, what, enough)
    over = [row.name for row in found.values() if row.used > row.total]
    if over:
        what = f"more is held than there is: {_some(over)}; until enough is returned, nothing that asks for it starts"
        return Finding(Level.WARN, subject, what, "see which jobs hold it: squeue -L NAME")
    without = [node.name for node in nodes if node.name not in found]
    lacking = f"; not on {_some(without)}" if without else ""
    return Finding(Level.OK, subject, f"{total} on {len(found)} nodes, as {pattern}{lacking}")


def _memory(
    values: Mapping[str, str], node_licenses: Sequence[NodeLicense], frees: Mapping[str, Collection[str]]
) -> list[Finding]:
    methods = _that_free(_MEMORY, frees)
    if not methods:
        return []
    subject = "memory of preempted jobs"
    is_licensed = any(node_license.kind == _MEMORY for node_license in node_licenses)
    if _counts_memory(values):
        what = f"SelectTypeParameters counts memory: what {methods} moves out stays allocated"
        fix = "SelectTypeParameters=CR_Core, node licenses for memory (docs/node-licenses.md)"
        fix += " and ConstrainRAMSpace in cgroup.conf"
        return [Finding(Level.WARN, subject, what, fix)]
    if is_licensed:
        return [Finding(Level.OK, subject, f"other jobs get what {methods} moves out through node licenses")]
    what = f"no node license counts memory: jobs beside one preempted by {methods} may need more than a node has"
    return [Finding(Level.WARN, subject, what, f"a [[node_license]] of kind {_MEMORY!r} (docs/node-licenses.md)")]


def suspended_memory(values: Mapping[str, str], offered: Mapping[str, Sequence[MethodTraits]]) -> list[Finding]:
    """``offered``: by class, the methods that its jobs may name, or have by default; classes without a last resort."""
    if not _counts_memory(values):
        return []
    what = "SelectTypeParameters counts memory, which {} leaves to a preempted job: it may keep a node's from everybody"
    fix = 'when_preemption_fails = "requeue": such a job is requeued where its memory is needed'
    return [
        Finding(Level.WARN, f"methods of class {name}", what.format(" or ".join(keeping)), fix)
        for name, methods in offered.items()
        if (keeping := [method.name for method in methods if not method.leaves and _MEMORY not in method.frees])
    ]


def _counts_memory(values: Mapping[str, str]) -> bool:
    return "memory" in values.get("SelectTypeParameters", "").lower()


def _devices(
    node_licenses: Sequence[NodeLicense], nodes: Sequence[Node], frees: Mapping[str, Collection[str]]
) -> list[Finding]:
    methods = _that_free(_DEVICES, frees)
    if not methods:
        return []
    subject = "devices of preempted jobs"
    counted = [node_license for node_license in node_licenses if node_license.kind == _DEVICES]
    if not counted:
        what = f"no node license counts devices: what {methods} frees stays allocated in Slurm"
        return [Finding(Level.WARN, subject, what, f"a [[node_license]] of kind {_DEVICES!r} (docs/node-licenses.md)")]
    names = {name.partition(":")[0] for node in nodes for name, _ in node.gres}
    both = sorted({node_license.name for node_license in counted} & names)
    if both:
        what = f"{', '.join(both)} is a Gres as well: jobs that ask for it with --gres keep it while they are preempted"
        fix = "remove it from GresTypes and Gres=, so that all jobs ask with --licenses"
        return [Finding(Level.WARN, subject, what, fix)]
    return [Finding(Level.OK, subject, f"other jobs get what {methods} frees through node licenses")]


def _that_free(kind: str, frees: Mapping[str, Collection[str]]) -> str:
    return ", ".join(sorted(method for method, kinds in frees.items() if kind in kinds))


_EXIT_CODES = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?")


def _codes(text: str) -> set[int]:
    """``"100,101-109"`` as numbers; words (SPECIAL_EXIT) and "(null)" are none."""
    found: set[int] = set()
    for part in filter(_EXIT_CODES.fullmatch, text.replace(" ", "").split(",")):
        try:
            found.update(int(code) for code in RangeSet(part))
        except (RangeSetException, ValueError):
            continue
    return found


def _listed(text: str) -> set[str]:
    return set(text.replace(" ", "").split(","))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
