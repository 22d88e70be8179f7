"""Whose hold it is: the marks that job_submit.lua compares and writes, on a real Slurm, for single jobs and arrays."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import clear
from tests.support.marked_jobs import (
    DAEMON,
    GONE,
    LATER,
    OPERATOR,
    OTHER,
    OWNER,
    PREEMPTIBLE,
    ROOT,
    MarkedCluster,
    Record,
    marked_cluster,
)
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[MarkedCluster]:
    with marked_cluster() as made:
        yield made


@pytest.fixture
def gate(cluster: MarkedCluster) -> Iterator[MarkedCluster]:
    """The cluster, while the daemon seems to live."""
    cluster.beat()
    yield cluster
    clear(cluster.slurm)


# -- the states in which jobs are found -------------------------------------------------------------------------------


def at_gate(on: MarkedCluster, ref: str) -> None:
    """Held at submit."""


def ours(on: MarkedCluster, ref: str) -> None:
    assert on.order(ref, "omfs:held:7?omfs:held:0 for job 5 | site=1", hold=True) == ""


def being_released(on: MarkedCluster, ref: str) -> None:
    ours(on, ref)
    assert on.order(ref, "omfs:rel:8?omfs:held:7 in turn | site=1") == ""


def released(on: MarkedCluster, ref: str) -> None:
    being_released(on, ref)
    assert on.scontrol(DAEMON, "release", ref) == ""


def held_by_root(on: MarkedCluster, ref: str) -> None:
    ours(on, ref)
    assert on.scontrol(ROOT, "hold", ref) == ""


def released_by_root(on: MarkedCluster, ref: str) -> None:
    ours(on, ref)
    assert on.scontrol(ROOT, "release", ref) == ""


def unmarked(on: MarkedCluster, ref: str) -> None:
    """Let in at submit."""


def unmarked_held_by_root(on: MarkedCluster, ref: str) -> None:
    assert on.scontrol(ROOT, "hold", ref) == ""


def unmarked_held_by_owner(on: MarkedCluster, ref: str) -> None:
    assert on.scontrol(OWNER, "hold", ref) == ""


def stopping(on: MarkedCluster, ref: str) -> None:
    assert on.order(ref, "omfs:stopping:9?") == ""


def held_no_more(on: MarkedCluster, ref: str) -> None:
    """An administrator has released it while the daemon was dead: nobody has recorded that."""
    assert on.order(ref, "omfs:held:7?") == ""


def waits_at_gate(on: MarkedCluster, ref: str) -> None:
    """Submitted as held; then its owner released it."""
    assert on.scontrol(OWNER, "release", ref) == ""


Prepare = Callable[[MarkedCluster, str], None]
LET_IN = (unmarked, unmarked_held_by_root, unmarked_held_by_owner, stopping, held_no_more)
KINDS = {"job": (), "array": ("--array=1-4",), "split": ("--array=1-4",)}


def prepared(on: MarkedCluster, prepare: Prepare, kind: str = "job", user: str = OWNER) -> str:
    """A waiting job in that state. "split": an array of several records, which one update changes."""
    options = [PREEMPTIBLE if prepare in LET_IN else "--comment=words"]
    ref = on.submit(LATER, *options, *(["--hold"] if prepare is waits_at_gate else []), *KINDS[kind], user=user)
    if kind == "split":
        assert on.scontrol(ROOT, "update", f"jobid={ref}_[2-3]", "timelimit=5") == ""
        assert len(on.records(ref)) == 3
    prepare(on, ref)
    return ref


HOLD, UHOLD, RELEASE = "hold", "uhold", "release"


def act(on: MarkedCluster, ref: str, user: str, what: str) -> str:
    """``hold``, ``uhold``, ``release``; or a text for AdminComment, with "0 " before it for Priority=0 with it."""
    if what in (HOLD, UHOLD, RELEASE):
        return on.scontrol(user, what, ref)
    return on.order(ref, what.removeprefix("0 "), hold=what.startswith("0 "), user=user)


SITE = " | site=1"
TAKEN: list[tuple[Prepare, str, str, str, bool]] = [
    # state, who, what, then AdminComment, then held
    (at_gate, DAEMON, "0 omfs:held:7?omfs:held:0 for job 5 | x", "omfs:held:7 for job 5 | x", True),
    (at_gate, DAEMON, "omfs:rel:7?omfs:held:0", "omfs:rel:7", True),
    (ours, DAEMON, "0 omfs:held:8?omfs:held:7", "omfs:held:8", True),
    (being_released, DAEMON, RELEASE, "omfs:rel:8 in turn | site=1", False),
    (being_released, DAEMON, "omfs:rel:9?omfs:rel:8", "omfs:rel:9", True),
    (released, DAEMON, RELEASE, "omfs:rel:8 in turn | site=1", False),
    (released, DAEMON, "0 omfs:held:9?omfs:rel:8", "omfs:held:9", True),
    (unmarked, DAEMON, "0 omfs:held:7?", "omfs:held:7", True),
    (unmarked, DAEMON, "omfs:stopping:7? why", "omfs:stopping:7 why", False),
    (stopping, DAEMON, "0 omfs:held:10?omfs:stopping:9", "omfs:held:10", True),
    (released_by_root, DAEMON, "0 omfs:held:9?adm:rel", "omfs:held:9", True),
    (held_no_more, DAEMON, "adm:rel?omfs:held:7", "adm:rel", False),
    (ours, DAEMON, "adm:rel?omfs:held:7", "adm:rel", True),
    (held_by_root, DAEMON, "adm:rel?adm:held", "adm:rel", True),
    (waits_at_gate, DAEMON, "0 omfs:held:7?", "omfs:held:7", True),
    (waits_at_gate, DAEMON, "0 omfs:held:7?omfs:held:0", "omfs:held:7", True),
    (waits_at_gate, DAEMON, "omfs:rel:7?omfs:held:0", "omfs:rel:7", True),
    # By hand, as the daemon's user: an administrator as any other.
    (ours, DAEMON, HOLD, "adm:held | site=1", True),
    (at_gate, ROOT, HOLD, "adm:held", True),
    (at_gate, ROOT, RELEASE, "adm:rel", False),
    (ours, ROOT, HOLD, "adm:held" + SITE, True),
    (ours, ROOT, UHOLD, "adm:held" + SITE, True),
    (ours, ROOT, RELEASE, "adm:rel" + SITE, False),
    (ours, ROOT, "statistics", "omfs:held:7 for job 5 | statistics", True),
    (ours, ROOT, "+=2", "omfs:held:7 for job 5 | site=1,2", True),
    (ours, ROOT, "", "omfs:held:7 for job 5", True),
    (ours, ROOT, "0 statistics", "adm:held | statistics", True),
    (ours, ROOT, "omfs:rel:8?omfs:held:7", "omfs:rel:8", True),
    (being_released, ROOT, HOLD, "adm:held" + SITE, True),
    (being_released, ROOT, RELEASE, "omfs:rel:8 in turn" + SITE, False),
    (released, ROOT, HOLD, "adm:held" + SITE, True),
    (stopping, ROOT, HOLD, "adm:held", True),
    (stopping, ROOT, RELEASE, "omfs:stopping:9", False),
    (held_by_root, ROOT, RELEASE, "adm:rel" + SITE, False),
    (released_by_root, ROOT, UHOLD, "adm:held" + SITE, True),
    (waits_at_gate, ROOT, HOLD, "adm:held", True),
    (waits_at_gate, ROOT, RELEASE, "adm:rel", False),
    (unmarked, ROOT, HOLD, "", True),
    (unmarked, ROOT, "statistics", "statistics", False),
    (unmarked, ROOT, "+=statistics", "statistics", False),
    (unmarked_held_by_root, ROOT, RELEASE, "", False),
    (released, OWNER, HOLD, "omfs:rel:8 in turn" + SITE, True),
    (unmarked, OWNER, HOLD, "", True),
    (unmarked_held_by_owner, OWNER, RELEASE, "", False),
]
REFUSED: list[tuple[Prepare, str, str]] = [
    (at_gate, DAEMON, "0 omfs:held:7?"),
    (at_gate, DAEMON, "0 omfs:held:7?omfs:held:00"),
    (at_gate, DAEMON, "0 omfs:stopping:7?omfs:held:0"),
    (at_gate, DAEMON, "0 omfs:rel:7?omfs:held:0"),
    (at_gate, DAEMON, RELEASE),
    (ours, DAEMON, "0 omfs:held:8?omfs:held:0"),
    (ours, DAEMON, "omfs:rel:8?"),
    (ours, DAEMON, RELEASE),
    (unmarked, DAEMON, "0 omfs:held:7?omfs:rel:6"),
    (unmarked, DAEMON, RELEASE),
    (held_no_more, DAEMON, "adm:rel?omfs:held:6"),
    (held_by_root, DAEMON, "0 omfs:held:8?omfs:held:7"),
    (held_by_root, DAEMON, "0 omfs:held:8?adm:held"),
    (held_by_root, DAEMON, "omfs:rel:8?adm:held"),
    (held_by_root, DAEMON, RELEASE),
    (unmarked_held_by_root, DAEMON, "0 omfs:held:8?"),
    (unmarked_held_by_root, DAEMON, "omfs:rel:8?"),
    (unmarked_held_by_root, DAEMON, "omfs:stopping:8?"),
    (held_by_root, DAEMON, "omfs:stopping:8?adm:held"),
    (unmarked_held_by_root, DAEMON, RELEASE),
    (unmarked_held_by_owner, DAEMON, "0 omfs:held:8?"),
    (unmarked_held_by_owner, DAEMON, "omfs:rel:8?"),
    *((ours, user, text) for user in (DAEMON, ROOT) for text in ("omfs:rel:8", "adm:rel", "adm:held")),
    (ours, DAEMON, "0 adm:rel?omfs:held:7"),
    (unmarked, ROOT, "omfs:held:1"),
    (unmarked, ROOT, "0 omfs:held:1"),
    (unmarked, ROOT, "+=omfs:held:1"),
    *((state, OWNER, what) for state in (at_gate, ours, stopping) for what in (HOLD, RELEASE)),
    (being_released, OWNER, HOLD),
    (held_by_root, OWNER, RELEASE),
    (unmarked_held_by_root, OWNER, "omfs:rel:1?"),
    *((state, OTHER, what) for state in (at_gate, unmarked) for what in (HOLD, RELEASE, "text", "0 omfs:held:9?")),
]


def named(value: object) -> str | None:
    return value.__name__ if callable(value) else None


@pytest.mark.parametrize("kind", KINDS)
def test_the_daemon_releases_for_an_operator(gate: MarkedCluster, kind: str) -> None:
    """With an administrator's mark, so that it does not hold the job again: omfs release."""
    ref = prepared(gate, ours, kind)
    assert act(gate, ref, DAEMON, "adm:rel?omfs:held:7 for bob | site=1") == ""
    assert act(gate, ref, DAEMON, RELEASE) == ""
    said = "adm:rel for bob | site=1"
    assert {(record.admin_comment, record.priority == 0) for record in gate.records(ref)} == {(said, False)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("state", "user", "what", "then", "held"), TAKEN, ids=named)
def test_what_is_taken(
    gate: MarkedCluster, kind: str, state: Prepare, user: str, what: str, then: str, held: bool
) -> None:
    ref = prepared(gate, state, kind)
    assert act(gate, ref, user, what) == ""
    assert {(record.admin_comment, record.priority == 0) for record in gate.records(ref)} == {(then, held)}
    if state is waits_at_gate and not what.startswith("omfs:rel"):
        assert {record.comment for record in gate.records(ref)} == {"words"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("state", "user", "what"), REFUSED, ids=named)
def test_what_is_refused(gate: MarkedCluster, kind: str, state: Prepare, user: str, what: str) -> None:
    ref = prepared(gate, state, kind)
    before = gate.records(ref)
    assert re.search("denied|Invalid user id", act(gate, ref, user, what))
    assert gate.records(ref) == before


# -- arrays whose records differ --------------------------------------------------------------------------------------


def by_task(on: MarkedCluster, ref: str) -> dict[str, str]:
    return {record.task: record.admin_comment for record in on.records(ref)}


def test_one_update_of_an_array_is_compared_with_each_record(gate: MarkedCluster) -> None:
    ref = prepared(gate, at_gate, "array")
    assert gate.order(f"{ref}_[2-3]", "omfs:held:1?omfs:held:0 a", hold=True) == ""
    assert "denied" in gate.order(ref, "omfs:held:2?omfs:held:1 b", hold=True)
    assert by_task(gate, ref) == {"1,4": "omfs:held:0", "2": "omfs:held:2 b", "3": "omfs:held:2 b"}
    assert "denied" in gate.order(ref, "omfs:rel:3?omfs:held:0")
    assert by_task(gate, ref) == {"1,4": "omfs:rel:3", "2": "omfs:held:2 b", "3": "omfs:held:2 b"}
    assert "denied" in gate.scontrol(DAEMON, "release", ref)
    assert {record.task: record.priority == 0 for record in gate.records(ref)} == {"1,4": False, "2": True, "3": True}


def test_an_administrators_hold_of_an_array_marks_the_marked_records_only(gate: MarkedCluster) -> None:
    ref = prepared(gate, unmarked, "array")
    assert gate.order(f"{ref}_1", "omfs:held:1? | one", hold=True) == ""
    assert gate.order(f"{ref}_3", "omfs:held:1? | three", hold=True) == ""
    assert gate.scontrol(ROOT, "hold", ref) == ""
    assert by_task(gate, ref) == {"1": "adm:held | one", "2,4": "", "3": "adm:held | three"}
    assert gate.scontrol(ROOT, "release", ref) == ""
    assert by_task(gate, ref) == {"1": "adm:rel | one", "2,4": "", "3": "adm:rel | three"}
    assert gate.scontrol(ROOT, "update", f"jobid={ref}", "AdminComment=new") == ""
    assert by_task(gate, ref) == {"1": "adm:rel | new", "2,4": "new", "3": "adm:rel | new"}
    assert gate.scontrol(ROOT, "update", f"jobid={ref}", "AdminComment+=er") == ""
    assert by_task(gate, ref) == {"1": "adm:rel | new,er", "2,4": "new,er", "3": "adm:rel | new,er"}


def test_what_is_written_for_one_record_is_not_for_the_next(gate: MarkedCluster) -> None:
    """The tasks that are not split off come first."""
    ref = prepared(gate, unmarked, "split")
    assert gate.order(f"{ref}_[1,4]", "omfs:held:1? | site", hold=True) == ""
    for what, mark in ((HOLD, "adm:held | site"), (RELEASE, "adm:rel | site")):
        assert gate.scontrol(ROOT, what, ref) == ""
        assert by_task(gate, ref) == {"1,4": mark, "2": "", "3": ""}


def test_an_owners_release_of_an_array_leads_every_record_to_the_gate(gate: MarkedCluster) -> None:
    ref = gate.submit(LATER, "--hold", "--comment=words", "--array=1-4")
    assert gate.scontrol(OWNER, "update", f"jobid={ref}_[2-3]", "comment=other words") == ""
    assert gate.scontrol(OWNER, "release", ref) == ""
    assert {(record.priority, record.comment) for record in gate.records(ref)} == {
        (0, "words omfs:wait"),
        (0, "other words omfs:wait"),
    }
    assert gate.scontrol(OWNER, "hold", ref) == ""
    assert {record.comment for record in gate.records(ref)} == {"words", "other words"}


def test_tasks_that_start_keep_their_marks(gate: MarkedCluster) -> None:
    ref = gate.submit("--array=1-3", "--comment=words")
    assert gate.order(ref, "omfs:rel:1?omfs:held:0") == ""
    assert gate.scontrol(DAEMON, "release", ref) == ""
    wait_until(lambda: all(record.state == "RUNNING" for record in gate.records(ref)), "the tasks to run")
    assert by_task(gate, ref) == dict.fromkeys("123", "omfs:rel:1")
    assert gate.order(f"{ref}_2", "omfs:held:2?omfs:rel:1", hold=True) == ""
    assert gate.scontrol(ROOT, "hold", ref) == ""
    assert by_task(gate, ref) == dict.fromkeys("123", "adm:held")


# -- running jobs -----------------------------------------------------------------------------------------------------


def running(on: MarkedCluster, script: str = "sleep 3600") -> str:
    ref = on.submit(PREEMPTIBLE, script=script)
    wait_until(lambda: on.record(ref).state == "RUNNING", "the job to run")
    return ref


def waits(on: MarkedCluster, ref: str) -> Record:
    """The job, once it has returned to the queue, and Slurm's scheduler, which passes later, has written the reason."""

    def returned() -> Record | None:
        found = on.record(ref)
        return found if found.state in ("PENDING", "SPECIAL_EXIT") and found.reason != "None" else None

    return wait_until(returned, "the job to be requeued, with a reason")


def test_a_preempted_job_returns_held_with_its_mark(gate: MarkedCluster) -> None:
    ref = running(gate)
    assert gate.order(ref, "omfs:held:1? for job 5", hold=True) == ""
    assert gate.record(ref).state == "RUNNING"
    assert gate.scontrol(DAEMON, "requeue", "incomplete", ref) == ""
    held = waits(gate, ref)
    assert (held.priority, held.reason, held.admin_comment) == (0, "JobHeldAdmin", "omfs:held:1 for job 5")
    assert "denied" in gate.scontrol(OWNER, "release", ref)


def exited(on: MarkedCluster, *marks: str) -> str:
    """A job that was marked while it ran, and whose script has ended with an exit code of omfs-run's."""
    flag = on.slurm.output / "go"
    ref = running(on, f"until test -e {flag}; do sleep 0.1; done; exit 101")
    try:
        for mark in marks:
            assert on.order(ref, mark) == ""
        flag.touch()
        assert waits(on, ref).priority == 0
    finally:
        flag.unlink()
    return ref


def test_what_omfs_run_requeues_and_holds_is_taken_over(gate: MarkedCluster) -> None:
    ref = exited(gate, "omfs:stopping:1?")
    assert "denied" in gate.scontrol(OWNER, "release", ref)
    assert "denied" in gate.order(ref, "omfs:held:2?", hold=True)
    assert gate.order(ref, "omfs:held:2?omfs:stopping:1", hold=True) == ""
    assert gate.record(ref).admin_comment == "omfs:held:2"


def test_what_omfs_run_requeues_without_a_preemption_can_be_released(gate: MarkedCluster) -> None:
    """Somebody else has sent the signal."""
    ref = exited(gate)
    assert "denied" in gate.order(ref, "omfs:held:2?", hold=True)
    assert gate.order(ref, "omfs:rel:2?") == ""
    assert gate.scontrol(DAEMON, "release", ref) == ""
    assert gate.record(ref).priority > 0


def test_but_not_if_an_administrator_has_held_it_since(gate: MarkedCluster) -> None:
    ref = exited(gate)
    assert gate.scontrol(ROOT, HOLD, ref) == ""
    assert gate.record(ref).mark == "adm:held"
    assert "denied" in gate.order(ref, "omfs:rel:2?")
    assert "denied" in gate.order(ref, "omfs:rel:2?adm:held")


def test_an_owners_requeuehold_is_not_taken_over(gate: MarkedCluster) -> None:
    ref = running(gate)
    assert gate.order(ref, "omfs:stopping:1?") == ""
    assert gate.scontrol(OWNER, "requeuehold", ref) == ""
    assert waits(gate, ref).reason == "job_requeued_in_held_state"
    assert "denied" in gate.order(ref, "omfs:held:2?omfs:stopping:1", hold=True)
    assert "denied" in gate.scontrol(OWNER, RELEASE, ref)
    assert gate.order(ref, "omfs:rel:2?omfs:stopping:1") == ""
    assert gate.scontrol(OWNER, RELEASE, ref) == ""
    assert gate.record(ref).priority > 0


def test_a_requeuehold_after_an_undone_preemption_can_be_released(gate: MarkedCluster) -> None:
    """It may be omfs-run's, of a checkpoint that was under way."""
    ref = running(gate)
    assert gate.order(ref, "omfs:stopping:1?") == ""
    assert gate.order(ref, "omfs:rel:2?omfs:stopping:1") == ""
    assert gate.scontrol(OWNER, "requeuehold", ref) == ""
    assert waits(gate, ref).reason == "job_requeued_in_held_state"
    assert gate.order(ref, "omfs:rel:3?omfs:rel:2") == ""
    assert gate.scontrol(DAEMON, "release", ref) == ""
    assert gate.record(ref).priority > 0


def test_a_suspended_job_can_be_held_and_requeued(gate: MarkedCluster) -> None:
    """Slurm gives suspended jobs the priority 0."""
    ref = running(gate)
    assert gate.order(ref, "omfs:stopping:1?") == ""
    assert gate.scontrol(DAEMON, "suspend", ref) == ""
    assert (gate.record(ref).state, gate.record(ref).priority) == ("SUSPENDED", 0)
    assert gate.order(ref, "omfs:held:2?omfs:stopping:1", hold=True) == ""
    assert gate.scontrol(DAEMON, "requeue", "incomplete", ref) == ""
    assert (waits(gate, ref).reason, waits(gate, ref).admin_comment) == ("JobHeldAdmin", "omfs:held:2")


def test_a_suspended_job_that_its_owner_requeues_can_be_released(gate: MarkedCluster) -> None:
    """Slurm holds it as an administrator does; nobody else would release it."""
    ref = running(gate)
    assert gate.order(ref, "omfs:stopping:1?") == ""
    assert gate.scontrol(DAEMON, "suspend", ref) == ""
    assert gate.scontrol(OWNER, "requeue", ref) == ""
    assert (waits(gate, ref).reason, waits(gate, ref).priority) == ("JobHeldAdmin", 0)
    assert gate.order(ref, "omfs:rel:2?omfs:stopping:1") == ""
    assert gate.scontrol(DAEMON, "release", ref) == ""
    assert gate.record(ref).priority > 0


# -- Operators --------------------------------------------------------------------------------------------------------
# Slurm knows them only from slurmdbd. Here they act on jobs of their own, which Slurm lets anybody hold and release.

OF_OURS = "only an Administrator can hold or release it"


@pytest.mark.parametrize("what", [HOLD, RELEASE])
@pytest.mark.parametrize("state", [at_gate, ours, stopping, being_released], ids=named)
def test_operators_do_not_hold_or_release_what_we_hold(gate: MarkedCluster, state: Prepare, what: str) -> None:
    ref = prepared(gate, state, user=OPERATOR)
    before, told = gate.record(ref), log_of(gate).count(OF_OURS)
    said = gate.scontrol(OPERATOR, what, ref)
    assert "denied" in said
    assert gate.record(ref) == before
    if (state, what) != (being_released, RELEASE):  # that one is refused by Slurm: for it, the job is an owner's
        assert log_of(gate).count(OF_OURS) == told + 1


def test_operators_hold_and_release_all_else(gate: MarkedCluster) -> None:
    ref = prepared(gate, unmarked, user=OPERATOR)
    assert gate.scontrol(OPERATOR, HOLD, ref) == ""
    assert gate.scontrol(OPERATOR, RELEASE, ref) == ""
    ref = prepared(gate, released, user=OPERATOR)
    assert gate.scontrol(OPERATOR, HOLD, ref) == ""
    assert (gate.record(ref).priority, gate.record(ref).mark) == (0, "omfs:rel:8")
    assert gate.scontrol(OPERATOR, RELEASE, ref) == ""
    assert gate.record(ref).priority > 0


def log_of(on: MarkedCluster) -> str:
    return (on.slurm.directory / "log" / "slurmctld.log").read_text()


# -- the rest ---------------------------------------------------------------------------------------------------------

LIBSLURM = """
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
int main(int argc, char **argv) {
    job_desc_msg_t change;
    slurm_init(NULL);
    slurm_init_job_desc_msg(&change);
    change.job_id = atoi(argv[1]);
    change.priority = INFINITE;
    change.admin_comment = argv[2];
    return argc != 3 || slurm_update_job(&change) ? 1 : 0;
}
"""


def test_a_release_and_its_mark_in_one_update(gate: MarkedCluster, tmp_path: Path) -> None:
    """As PySlurm sends them; scontrol cannot."""
    source, program = tmp_path / "release.c", gate.slurm.output / "release"
    source.write_text("#include <stdlib.h>\n" + LIBSLURM)
    subprocess.run(["gcc", str(source), "-o", str(program), "-lslurm"], check=True, timeout=LIMIT)
    program.chmod(0o755)

    def release(user: str, ref: str, comment: str) -> int:
        return gate.slurm.command(str(program), ref, comment, check=False, uid=user).code

    ref = prepared(gate, ours)
    before = gate.record(ref)
    for comment in ("omfs:rel:8?omfs:held:6", "omfs:held:8?omfs:held:7", "omfs:rel:8", "text", "0 omfs:rel:8?"):
        assert release(DAEMON, ref, comment) == 1, comment
    assert gate.record(ref) == before
    assert release(DAEMON, ref, "omfs:rel:8?omfs:held:7 in turn") == 0
    assert (gate.record(ref).admin_comment, gate.record(ref).priority > 0) == ("omfs:rel:8 in turn", True)


def test_without_a_daemon_owners_release_what_it_held(gate: MarkedCluster) -> None:
    ref = prepared(gate, at_gate)
    gate.beat(GONE)
    assert gate.scontrol(OWNER, RELEASE, ref) == ""
    assert gate.record(ref).priority > 0


def test_where_omfsd_was_never_started_jobs_are_moved_all_the_same(gate: MarkedCluster) -> None:
    """Slurm takes the errno of a file that cannot be opened for its own."""
    (gate.slurm.directory / "heartbeat").unlink()
    ref = gate.submit(LATER, PREEMPTIBLE)
    for user in (ROOT, OWNER):
        for change in ("partition=urgent", "account=other", "partition=main", "account=one"):
            assert gate.scontrol(user, "update", f"jobid={ref}", change) == ""


def test_where_omfsd_cannot_be_woken_jobs_are_moved_all_the_same(gate: MarkedCluster) -> None:
    conf = gate.slurm.directory / "omfs_job_submit.conf"
    kept = conf.read_text()
    try:
        conf.write_text(f"{kept}wake = {gate.slurm.directory}/nowhere/wake\n")
        ref = gate.submit(LATER, PREEMPTIBLE)
        assert gate.scontrol(OWNER, "update", f"jobid={ref}", "partition=urgent") == ""
    finally:
        conf.write_text(kept)


def test_an_unknown_setting_is_logged_once(gate: MarkedCluster) -> None:
    conf = gate.slurm.directory / "omfs_job_submit.conf"
    kept = conf.read_text()
    try:
        conf.write_text(kept + "books = ve_{node}\nclass_1 = account=free;methods=requeue;default=requeue\n")
        assert gate.record(gate.submit("--account=free")).priority > 0
        assert gate.record(gate.submit("--account=other")).mark == "omfs:held:0", "the known settings are in force"
    finally:
        conf.write_text(kept)
    assert log_of(gate).count("unknown setting books") == 1
    assert "unknown setting class_1" not in log_of(gate)


def test_a_daemon_that_runs_as_root() -> None:
    """Its releases cannot be told from an administrator's."""
    with marked_cluster(ROOT) as on:
        on.beat()
        ref = on.submit(LATER)
        assert on.order(ref, "omfs:held:7?omfs:held:0 for job 5 | site=1", hold=True, user=ROOT) == ""
        assert on.order(ref, "omfs:rel:8?omfs:held:7 | site=1", user=ROOT) == ""
        assert on.scontrol(ROOT, RELEASE, ref) == ""
        assert (on.record(ref).admin_comment, on.record(ref).priority > 0) == ("omfs:rel:8 | site=1", True)
        assert on.order(ref, "omfs:held:9?omfs:rel:8", hold=True, user=ROOT) == ""
        assert on.scontrol(ROOT, RELEASE, ref) == ""
        assert (on.record(ref).admin_comment, on.record(ref).priority > 0) == ("adm:rel", True)


# -- two omfsd of which one acts ------------------------------------------------------------------------------------


@pytest.fixture
def epoch(gate: MarkedCluster) -> Iterator[Path]:
    """What the active omfsd has written for the gate: its marks have numbers above 7000000000."""
    path = gate.slurm.directory / "epoch"
    path.write_text("7000000000\n")
    yield path
    path.unlink()


@pytest.mark.parametrize("late", ["6000000009", "9", "7000000000"])
def test_a_late_order_of_an_earlier_epoch_is_refused(gate: MarkedCluster, epoch: Path, late: str) -> None:
    job = gate.submit(LATER)
    before = gate.record(job)
    assert "denied" in gate.order(job, f"omfs:held:{late}?{before.mark} late", hold=True)
    assert gate.record(job) == before
    assert gate.order(job, f"omfs:held:7000000001?{before.mark} now", hold=True) == ""
    assert gate.record(job).mark == "omfs:held:7000000001"
    assert "denied" in gate.order(job, f"omfs:rel:{late}?omfs:held:7000000001")
    assert gate.order(job, "omfs:rel:7000000002?omfs:held:7000000001") == ""


def test_administrators_and_a_gate_without_an_epoch_are_not_concerned(gate: MarkedCluster, epoch: Path) -> None:
    job = gate.submit(LATER)
    mark = gate.record(job).mark
    assert gate.order(job, f"omfs:held:7000000001?{mark}", hold=True) == ""
    assert gate.scontrol(ROOT, "release", job) == ""
    assert gate.record(job).mark == "adm:rel"
    epoch.write_text("what somebody has written\n")
    assert gate.order(job, "omfs:held:5?adm:rel", hold=True) == ""
