"""A gateway that keeps what has not changed since the poll before gives the same jobs as one that knows nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.asked_apart import ALL_AGAIN
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from tests.unit.slurm.test_parse import ROW, WAITING

_SEPARATOR = re.compile(r"JobID:([^,]+),|%A(.+?)%x")
_IDS = ("2", "3", "4")
_VALUES: dict[str, Sequence[str]] = {
    "state": ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "COMPLETED", "WORSE"),
    "array_task_id": ("N/A", "0", "1,3-5", "1,3,5", "0-9:3"),
    "het_job_id": ("N/A", "7"),
    "reason": ("None", "Resources", "JobHeldAdmin", "Dependency"),
    "node_list": ("", "n1", "n[1-2]", "n["),
    "tres": (ROW.tres, "cpu=3,mem=600M,node=1", "cpu=3,mem=1G"),
    "cpus": ("6", "3", "x"),
    "dependency": ("(null)", "afterok:3(unfulfilled)", "singleton(unfulfilled)", "afterok:9(failed)"),
    "over_subscribe": ("OK", "NO"),
    "features": ("(null)", "a&b"),
    "licenses": ("(null)", "ve:2"),
    "partition": ("main", "main,urgent"),
    "tres_per_node": ("N/A", "gres:gpu:2", "gres:gpu:x:y:z"),
    "min_memory": ("200M", "0", "?"),
    "required_nodes": ("", "n1"),
    "time_used": ("0:02", "1:02:03", "INVALID", "soon"),
    "time_limit": ("365-00:00:00", "UNLIMITED", "10:00"),
    "name": ("wrap", "", "\n3\n", "a\nb"),
    "comment": ("(null)", "\n", "omfs:method=requeue"),
}
_NUMBERS = ("0", "1", "2", "7", "x")
_changes = st.sampled_from(JobRow._fields[2:]).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(_VALUES.get(name, _NUMBERS)))
)
_step = st.tuples(
    st.lists(st.tuples(st.sampled_from(_IDS), _changes), max_size=3),
    st.dictionaries(st.sampled_from(_IDS), st.sampled_from(("", "n1", "n[1-2]")), max_size=2),
    st.sets(st.sampled_from(_IDS), max_size=1),
)


class Slurm:
    """Answers the commands of a gateway from rows; ``lines``: a line for each task of a waiting array."""

    def __init__(self, lines: bool) -> None:
        self.rows = {job_id: (ROW if job_id == "2" else WAITING)._replace(job_id=job_id) for job_id in _IDS}
        self.excluded: dict[str, str] = {}
        self.gone: set[str] = set()
        self._lines = lines

    def change(self, job_id: str, name: str, value: str) -> None:
        self.rows[job_id] = self.rows[job_id]._replace(**{name: value})

    def __call__(
        self, arguments: Sequence[str], *, variables: Mapping[str, str] | None = None, **_: Any
    ) -> CommandOutput:
        return CommandOutput(self._answer(arguments, "".join((variables or {}).values())), "", 0)

    def _answer(self, arguments: Sequence[str], wanted: str) -> str:
        if "--version" in arguments:
            return "slurm-wlm 24.11.5" if self._lines else "slurm-wlm 22.05.8"
        if arguments[:3] == ("scontrol", "show", "config"):
            return "SLURM_VERSION = 24.11.5\nSelectTypeParameters = CR_CPU_MEMORY\n"
        rows = [row for job_id, row in self.rows.items() if job_id not in self.gone]
        if arguments[0] == "scontrol":
            return "".join(map(_details, rows))
        found = _SEPARATOR.search(wanted)
        assert found is not None
        secret = found[1] or found[2]
        if found[2]:
            return "".join(f"{row.job_id}{secret}{self.excluded.get(row.job_id, '')}{secret}\n" for row in rows)
        return "".join("".join(field + secret for field in line) + "\n" for row in rows for line in self._tasks(row))

    def _tasks(self, row: JobRow) -> list[JobRow]:
        is_rest = self._lines and row.state == "PENDING" and "," in row.array_task_id
        return [row._replace(array_task_id=str(task)) for task in values.tasks(row.array_task_id)] if is_rest else [row]


def _details(row: JobRow) -> str:
    return (
        f"JobId={row.job_id} JobName={row.name} UserId=nobody(65534) Account={row.account} QOS=(null) JOB_GRES=(null)"
        "   Nodes=n1 CPU_IDs=2-3 Mem=400 GRES=   Nodes=n2 CPU_IDs=0-3 Mem=800 GRES= MinCPUsNode=1 Comment=\n"
    )


@given(st.booleans(), st.lists(_step, max_size=6))
def test_a_later_poll_equals_a_first_one(lines: bool, steps: list[Any]) -> None:
    slurm, now = Slurm(lines), 0.0
    gateway = CommandGateway(runner=slurm, clock=lambda: now)
    gateway.jobs()
    for changes, excluded, gone in steps:
        for job_id, (name, value) in changes:
            slurm.change(job_id, name, value)
        slurm.excluded, slurm.gone = excluded, gone
        now += ALL_AGAIN  # so old may be what jobs exclude
        seen, again = gateway.jobs(), gateway.jobs()
        assert seen == CommandGateway(runner=slurm).jobs()
        assert all(one is other for one, other in zip(seen, again, strict=True)), "what has not changed is kept"


@pytest.mark.parametrize("lines", [False, True])
def test_no_field_is_overlooked(lines: bool) -> None:
    slurm = Slurm(lines)
    gateway = CommandGateway(runner=slurm)
    for name in JobRow._fields[2:]:
        for job_id in _IDS[:2]:
            before = getattr(slurm.rows[job_id], name)
            for value in (*_VALUES.get(name, _NUMBERS), before):
                slurm.change(job_id, name, value)
                assert gateway.jobs() == CommandGateway(runner=slurm).jobs(), (name, value)


def test_equal_requests_are_one_object() -> None:
    slurm = Slurm(lines=False)
    requests = {id(job.request) for job in CommandGateway(runner=slurm).jobs() if job.ref != "2"}
    assert len(requests) == 1


def test_a_text_is_never_split_by_what_a_user_could_know() -> None:
    """The suffix stays the same from poll to poll, but not when an answer could not be read: a message quotes it."""
    asked = []

    class Broken(Slurm):
        def _answer(self, arguments: Sequence[str], wanted: str) -> str:
            printed = super()._answer(arguments, wanted)
            if "JobID:" in wanted:
                found = _SEPARATOR.search(wanted)
                assert found is not None
                asked.append(found[1])
                return printed[:-9] if len(asked) == 3 else printed
            return printed

    gateway = CommandGateway(runner=Broken(lines=False))
    seen = [gateway.jobs(), gateway.jobs()]
    with pytest.raises(ParseError, match="a part of a job"):
        gateway.jobs()
    assert [*seen, gateway.jobs(), gateway.jobs()] == seen[:1] * 4
    assert asked[0] == asked[1] == asked[2] != asked[3] == asked[4]
