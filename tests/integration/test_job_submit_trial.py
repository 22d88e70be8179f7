"""Random acts of root, an Operator and the owner on a dozen jobs, among the orders of a small omfsd: no hold is lost.

Allowed are these outcomes, which neither the plug-in nor omfsd can tell or prevent:

- Slurm forgets every hold of a job that is suspended: it is lost at resume. The mark stays, and is wrong until the next
  order: ``omfs:held`` or ``adm:held`` with a priority.
- An owner releases what root held with ``uhold``, or an Operator what root held: ``adm:held`` with a priority.
- An owner or an Operator holds a job that root released: ``adm:rel`` with priority 0.
- An owner's or an Operator's hold between the two orders of a release (the mark of which root has forestalled by a
  release of its own) ends with the second order.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

import pytest

from tests.support.amounts import is_soak
from tests.support.marked_jobs import DAEMON, OPERATOR, OWNER, PREEMPTIBLE, ROOT, MarkedCluster, Record, marked_cluster

pytestmark = pytest.mark.slurm

ACTS = 4_000 if is_soak() else 150
SEED = 2026
CHECK_EVERY = 25
JOBS, TASKS = 8, 4
LIVE = {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "SPECIAL_EXIT", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"}
USERS_HOLDS = ("JobHeldUser", "job_requeued_in_held_state")
HUMANS = (ROOT, OPERATOR, OWNER)
US = "omfsd"
WHAT = {"hold": 2, "release": 3} | dict.fromkeys(
    ("uhold", "requeue", "requeuehold", "suspend", "resume", "nice", "text"), 1
)
"""What people do, and how often."""


def test_no_hold_is_lost_and_none_is_left_behind() -> None:
    with marked_cluster() as on:
        trial = Trial(on, random.Random(SEED))
        trial.run(ACTS)
        assert trial.faults == []
        for count in ("hold", "release", "requeue"):
            assert trial.counts[f"{US} {count}"] > 0, trial.counts


def is_held(record: Record) -> bool:
    """Suspended jobs have priority 0 without being held."""
    return record.priority == 0 and record.state != "SUSPENDED"


def is_ours(record: Record) -> bool:
    """Whose hold it is, as omfsd sees it; the gate's hold at submit is a user's for Slurm."""
    if record.reason == "JobHeldUser" and "omfs:wait" in record.comment.split():
        return record.mark != "adm:held"
    is_the_gates = record.mark == "omfs:held:0" and record.reason == "JobHeldUser"
    return record.mark.startswith("omfs:held:") and (record.reason not in USERS_HOLDS or is_the_gates)


class Trial:
    """``faults``: what must not have happened, in words. ``counts``: what was accepted and refused."""

    def __init__(self, on: MarkedCluster, rng: random.Random) -> None:
        self.on, self.rng = on, rng
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.looks: deque[list[Record]] = deque(maxlen=6)
        self.holders: dict[str, str] = {}  # who holds, by record; only of held ones
        self.requeued_by: dict[str, str] = {}  # whose requeue will end, or has ended, in a hold
        self.begun: dict[str, int] = {}  # the act in which the driver began to release, by its reference
        self.held_in: dict[str, int] = {}  # the act in which somebody set the present hold, by record
        self.later: list[tuple[int, Callable[[], object]]] = []
        self.releasing: set[str] = set()  # the marks of releases whose second order is yet to come
        self.cancelled: set[str] = set()
        self.seq, self.number, self.expected = 0, 0, ""
        self.acts: deque[str] = deque(maxlen=20)

    # -- the trial -------------------------------------------------------------------------------------------------
    def run(self, acts: int) -> None:
        self.on.beat()
        for _ in range(JOBS):
            self._submit()
        self._submit(f"--array=1-{TASKS}")
        self._look("", "", "")
        while self.number < acts and not self.faults:
            self.number += 1
            self.on.beat()
            self._look("", "", "")
            due = [entry for entry in self.later if entry[0] <= self.number]
            if due:
                self.later.remove(due[0])
                due[0][1]()
            elif self.rng.random() < 0.4:
                self._drive()
            else:
                self._human()
            if self.number % CHECK_EVERY == 0 or self.number == acts:
                self._check()

    def _submit(self, *arguments: str) -> None:
        option = self.rng.choice([PREEMPTIBLE, "--comment=words"])
        self.on.submit(option, *arguments)

    def _command(self, user: str, what: str, ref: str, order: Callable[[], str]) -> bool:
        said = order()
        self.counts[f"{user} {what}{' refused' if said else ''}"] += 1
        self.acts.append(f"{self.number}: {user} {what} {ref}: {said.strip() or 'done'}")
        is_of_several = "[" in ref or any(record.array == ref for record in self.looks[-1])
        is_done = not said or is_of_several  # of several records, some may have been changed
        self._look(*((user, what, ref) if is_done else ("", "", "")))
        return not said

    def _human(self) -> None:
        records = self.looks[-1]
        allocated = [record for record in records if record.state in ("RUNNING", "SUSPENDED")]
        user, seen = self.rng.choice(HUMANS), self.rng.choice(self.rng.choice((allocated or records, records)))
        if not seen.array and self.rng.random() < 0.05:  # another one takes its place, and is held by the gate or not
            self.cancelled.add(seen.id)
            self.on.slurm.command("scancel", "--signal=KILL", seen.id, check=False)
            self.on.slurm.command("scancel", seen.id, check=False)
            return
        ref = seen.array if seen.array and self.rng.random() < 0.2 else seen.ref
        (what,) = self.rng.choices(list(WHAT), list(WHAT.values()))
        if what == "nice":
            change = f"nice={self.rng.choice([-5, 0, 5])}"
            self._command(user, what, ref, lambda: self.on.scontrol(user, "update", f"jobid={ref}", change))
        elif what == "text":
            text = self.rng.choice(["statistics", "+=more", "omfs:held:1", "omfs:rel:1", "adm:rel"])
            self._command(
                user, what, ref, lambda: self.on.scontrol(user, "update", f"jobid={ref}", f"AdminComment={text}")
            )
        else:
            self._command(user, what, ref, lambda: self.on.scontrol(user, what, ref))

    # -- the driver: omfsd's orders, on what it saw some acts ago -------------------------------------------------
    def _drive(self) -> None:
        look = self.rng.choice(self.looks)
        seen = self.rng.choice([record for record in look if not is_held(record) or is_ours(record)] or look)
        self.seq += 1
        if is_held(seen):
            if is_ours(seen):
                self._begin_release(seen.ref, seen.mark if seen.mark.startswith("omfs:held") else "omfs:held:0")
        elif seen.state == "PENDING":
            if not seen.mark.startswith(("adm:rel", "omfs:held")):
                self._hold(seen)
        elif seen.state == "RUNNING" and self.rng.random() < 0.2:
            self._mark("stopping", seen.ref, "omfs:stopping", seen.mark)
        elif seen.state in ("RUNNING", "SUSPENDED") and self._hold(seen):
            mark = f"omfs:held:{self.seq}"
            self._soon(lambda: self._requeue(seen.ref, mark))

    def _soon(self, order: Callable[[], object]) -> None:
        self.later.append((self.number + self.rng.randint(1, 3), order))

    def _hold(self, seen: Record) -> bool:
        return self._mark("hold", seen.ref, "omfs:held", seen.mark, hold=True)

    def _mark(self, what: str, ref: str, word: str, expected: str, hold: bool = False) -> bool:
        self.expected = expected
        comment = f"{word}:{self.seq}?{expected} in turn"
        return self._command(US, what, ref, lambda: self.on.order(ref, comment, hold=hold))

    def _requeue(self, ref: str, mark: str) -> None:
        if not self._command(US, "requeue", ref, lambda: self.on.scontrol(DAEMON, "requeue", "incomplete", ref)):
            self.seq += 1
            self._begin_release(ref, mark)

    def _begin_release(self, ref: str, expected: str) -> None:
        mark = f"omfs:rel:{self.seq}"
        if self._mark("mark", ref, "omfs:rel", expected):
            self.begun[ref] = self.number
            self.releasing.add(mark)
            self._soon(lambda: self._end_release(ref, mark))

    def _end_release(self, ref: str, mark: str) -> None:
        self._command(US, "release", ref, lambda: self.on.scontrol(DAEMON, "release", ref))
        self.releasing.discard(mark)

    def _live(self) -> list[Record]:
        return [record for record in self.on.records() if record.state in LIVE and record.id not in self.cancelled]

    # -- the judge ------------------------------------------------------------------------------------------------
    def _look(self, user: str, what: str, ref: str) -> None:
        """Compare with the last look what the act (none: Slurm itself) has changed."""
        before = {record.id: record for record in self.looks[-1]} if self.looks else {}
        now = self._live()
        for record in now:
            was = before.get(record.id)
            if was is None:  # new, or split off the record that has the array's id
                parent = before.get(record.array, record)
                self.holders[record.id] = self.holders.get(parent.id, US if is_held(record) else "")
                self.held_in[record.id] = self.held_in.get(parent.id, 0)
                was = parent
            meant = ref in (record.ref, was.ref, record.array) or ref.startswith(f"{record.array}_[")
            self._judge(was, record, *((user, what, ref) if meant else ("", "", "")))
        while len(now) < JOBS + 1:
            self._submit()
            now = self._live()
            self.holders.update({record.id: US for record in now if is_held(record) and record.id not in self.holders})
        self.looks.append(now)

    def _judge(self, was: Record, record: Record, user: str, what: str, ref: str) -> None:
        holder = self.holders.get(record.id, "")
        if what == "requeuehold" or (what == "requeue" and was.state == "SUSPENDED"):
            self.requeued_by[record.id] = US if what == "requeue" and is_ours(record) else user
        if record.admin_comment != was.admin_comment:
            self._judge_mark(was, record, user)
        if not is_held(record):
            if is_held(was) and record.state != "SUSPENDED":
                self._judge_release(was, record, user, what, holder, ref)
            if record.state != "SUSPENDED":
                self.holders[record.id] = ""
            return
        self.holders[record.id] = self._holder(was, record, user, what, holder)
        if self.holders[record.id] != holder:
            self.held_in[record.id] = self.number

    def _judge_mark(self, was: Record, record: Record, user: str) -> None:
        at_gate = was.priority == 0 and "omfs:wait" in was.comment.split()
        if user == US:
            right = self.expected == was.mark or (at_gate and self.expected == "omfs:held:0")
        elif user == ROOT:
            was_marked = was.mark != "" or at_gate
            right = record.mark == was.mark or (was_marked and record.mark in ("adm:held", "adm:rel"))
        else:
            right = False
        if not right:
            self._fault(f"{user or 'nobody'} has marked {record}, which was {was}")

    def _holder(self, was: Record, record: Record, user: str, what: str, holder: str) -> str:
        if user == US and what == "hold" and record.mark == f"omfs:held:{self.seq}":
            if is_held(was) and holder != US:
                self._fault(f"our hold of {record} is laid over one by {holder}")
            return US
        if user == ROOT and what in ("hold", "uhold"):
            return f"{ROOT} by {what}"
        if user in (OWNER, OPERATOR) and what in ("hold", "uhold"):
            is_owners_again = "omfs:wait" in was.comment.split() and "omfs:wait" not in record.comment.split()
            return user if not is_held(was) or is_owners_again else holder
        if user == OWNER and what == "release" and is_ours(record):
            return US
        if not is_held(was) or record.reason == "job_requeued_in_held_state" != was.reason:
            if record.id not in self.requeued_by:
                self._fault(f"{record} is held by nobody")
            return self.requeued_by.get(record.id, holder)
        return holder

    def _judge_release(self, was: Record, record: Record, user: str, what: str, holder: str, ref: str) -> None:
        if what != "release":
            self._fault(f"{record} was released by nobody")
        elif user == US and holder != US:
            in_between = self.held_in.get(record.id, 0) >= self.begun.get(ref, self.number)
            if holder.startswith(ROOT) or not in_between:
                self._fault(f"omfsd released {record}, held by {holder}")
            self.counts[f"{US} ended a hold by {holder}"] += 1
        elif user in (OWNER, OPERATOR) and (holder == US and is_ours(was)):
            self._fault(f"{user} released our {record}, which was {was}")

    def _check(self) -> None:
        """Whoever holds a waiting job can be told."""
        for record in self.looks[-1]:
            is_waiting = record.state == "PENDING" and is_held(record) and record.mark not in self.releasing
            if is_waiting and not is_ours(record) and self.holders.get(record.id, "") in ("", US):
                self._fault(f"{record} is held, and nobody knows by whom")

    def _fault(self, text: str) -> None:
        self.faults.append("\n".join([text, *self.acts]))
