"""omfs-node on the fake's nodes, and the daemon's work queue for it, in virtual time.

The nodes outlive the daemon: what a job's processes do and where their memory is stays as it is when the daemon dies,
and what is under way there goes on; what the queue has *seen* is lost with it. Whatever must never happen to a process
is noted in :attr:`Nodes.violations`, and in :attr:`Nodes.crowded` where more memory is in than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.snapshot import NodeObservations, NodeRoom
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer, failed
from omfs_daemon.daemon.node_client.work_queue import _failed, _may_be_out, _undo, combined_status
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWork, NodeWorkState, NodeWorkStatus
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.restarts import SavedState

GB = 10**9
METHODS = ("pageout", "ve_swap")

_CONNECT = 5.0  # seconds until a node that cannot be reached is given up
_AT_ONCE = 0.05  # seconds until omfs-node refuses
_PART_FOR_OUT = 0.8  # of its time; the rest is for putting things back

Answered = Callable[[OmfsNodeAnswer], None]
Request = Mapping[str, object]


class SlurmOnNodes(FakeSlurm):
    """The fake Slurm with processes that somebody else may stop: they do no work then, though the job "runs"."""

    nodes: Nodes

    def suspend(self, record: Record) -> None:
        self._count_still_time(record)
        super().suspend(record)
        self.nodes.slurm_has_suspended(record)

    def resume(self, record: Record) -> None:
        super().resume(record)
        self.nodes.slurm_has_resumed(record)

    def restart(self, saved: SavedState, fails: Callable[[int], bool] = lambda _: False) -> None:
        super().restart(saved, fails)
        for number, (_, started) in self._still_since.items():
            record = self.records.get(number)
            if record is not None and record.state is JobState.RUNNING and record.started == started:
                record.epoch += 1

    def stand_still(self, record: Record) -> None:
        """From now on its processes do nothing; its time as Slurm counts it goes on."""
        if record.id not in self._still_since and record.state is JobState.RUNNING:
            self._still_since[record.id] = (self.now, record.started)
            record.epoch += 1

    def go_on(self, record: Record) -> None:
        if record.id in self._still_since and record.state is JobState.RUNNING:
            self._count_still_time(record)
            record.ran = record.ran_until(self.now)
            self._run(record)

    @property
    def _still_since(self) -> dict[int, tuple[float, float | None]]:
        return self.nodes.still_since

    def _count_still_time(self, record: Record) -> None:
        """Time that it only stood still is no work."""
        since, started = self._still_since.pop(record.id, (self.now, None))
        if started == record.started:
            record.what = replace(record.what, run_time=record.what.run_time + self.now - since)


@dataclass(slots=True)
class Part:
    """What one run of a job has on one node. ``out``: by which method its memory is out, "" if it is in; ``moving``:
    what omfs-node is at."""

    job: int
    node: str
    size: int
    out: str = ""
    stopped: bool = False
    moving: NodeAction | None = None


@dataclass(slots=True)
class Trouble:
    """What goes wrong on a node; ``times`` left. ``why``: omfs-node's code."""

    do: NodeAction
    why: str
    times: float
    node: str


class Nodes:
    """All nodes. ``sizes``: bytes that a job has on each of its nodes, by raw id; ``room``: bytes that each node can
    take, by method; ``memory``: bytes of the memory that is moved out of each node; ``rate``: bytes per second."""

    def __init__(
        self, slurm: SlurmOnNodes, room: Mapping[str, int] | None = None, memory: float = inf, rate: float = 6.0 * GB
    ) -> None:
        self.slurm = slurm
        slurm.nodes = self
        self.sizes: dict[int, int] = {}
        self.room = dict.fromkeys(METHODS, 100 * GB) if room is None else dict(room)
        self.memory = memory
        self.rate = rate
        self.violations: list[str] = []
        self.crowded: list[str] = []
        self.asked: list[tuple[float, str, int, str]] = []
        self.still_since: dict[int, tuple[float, float | None]] = {}
        self.hears_hang_up = False
        self._cut: set[str] = set()
        self._troubles: list[Trouble] = []
        self._parts: dict[tuple[int, float | None, str], Part] = {}
        self._locked: dict[tuple[int, str], list[Callable[[], None]]] = {}

    # -- the world's side ----------------------------------------------------------------------------------
    def cut(self, node: str) -> None:
        """From now on it cannot be reached; what is under way there goes on, but its answer is lost."""
        self._cut.add(node)

    def join(self, node: str) -> None:
        self._cut.discard(node)

    def fail(self, do: NodeAction, why: str, times: float = inf, node: str = "") -> None:
        """Let the next requests of this kind fail, on one node or all. ``slow``: they take too long instead."""
        self._troubles.append(Trouble(do, why, times, node))

    def fix(self) -> None:
        self._troubles.clear()

    def facts(self) -> NodeObservations:
        """What a probe finds now."""
        rooms = {
            node: NodeRoom({method: self._room(node, method) for method in self.room})
            for node in self.slurm.fake_nodes
            if node not in self._cut
        }
        live = [record.id for record in self.slurm.records.values() if record.active]
        return NodeObservations(rooms, {(job, method): self.sizes.get(job, 0) for job in live for method in METHODS})

    def stopped(self) -> list[int]:
        """Jobs that run in Slurm's eyes, whose processes stand still on a node."""
        return sorted({part.job for record, part in self._alive() if part.stopped and record.state is JobState.RUNNING})

    def out(self) -> list[int]:
        """Jobs with memory that is out."""
        return sorted({part.job for _, part in self._alive() if part.out})

    def check(self) -> None:
        """Note where the memory of those who are there does not fit; to be called at any time."""
        for node in self.slurm.fake_nodes if self.memory < inf else ():
            here = [part for _, part in self._resident(node)]
            if sum(part.size for part in here) > self.memory:
                self.crowded.append(
                    f"{self.slurm.now:.2f}: {node}: memory of {[part.job for part in here]} is in at once"
                )

    # -- what Slurm does to processes --------------------------------------------------------------------------
    def slurm_has_suspended(self, record: Record) -> None:
        for part in self._parts_of(record):
            part.stopped = True

    def slurm_has_resumed(self, record: Record) -> None:
        for part in self._parts_of(record):
            self._continue(record, part, "Slurm")

    # -- omfs-node ---------------------------------------------------------------------------------------------
    def ask(self, node: str, request: Request, timeout: float, answered: Answered) -> None:
        """One request; ``answered`` is called in virtual time, whatever happens."""
        now = self.slurm.now
        if node in self._cut:
            self._in(_CONNECT, lambda: answered(failed("unreachable", "No route to host")))
            return
        job = request["job"]
        assert isinstance(job, int)
        self.asked.append((now, str(request["do"]), job, node))
        deadline = now + timeout
        self._with_lock((job, node), lambda: self._begin(node, job, request, timeout, deadline, answered))

    def hang_up(self) -> None:
        """The daemon is gone and the nodes hear of it: what is being moved out is put back."""
        if self.hears_hang_up:
            for record, part in self._alive():
                if part.moving is NodeAction.OUT:
                    part.moving = None
                    if record.state is JobState.RUNNING:
                        self._continue(record, part, "omfs-node")

    def _begin(
        self, node: str, job: int, request: Request, timeout: float, deadline: float, answered: Answered
    ) -> None:
        def done(answer: OmfsNodeAnswer) -> None:
            self._unlock((job, node))
            if node in self._cut:
                self._in(max(0.0, deadline + _CONNECT - self.slurm.now), lambda: answered(failed("timeout", "none")))
            else:
                answered(answer)

        record = self.slurm.records[job]
        if self.slurm.now >= deadline:
            done(failed("busy", "another omfs-node works on this job"))
        elif not record.active or all(taken.node != node for taken in record.taken):
            done(OmfsNodeAnswer(ok=True, state="none"))
        elif request["do"] == NodeAction.OUT:
            self._out(record, self._part(record, node), request, timeout, done)
        else:
            self._bring_in(record, self._part(record, node), request, done)

    def _out(self, record: Record, part: Part, request: Request, timeout: float, done: Answered) -> None:
        method, suspended = str(request["method"]), bool(request["suspended"])
        part.stopped = True
        self.slurm.stand_still(record)
        if part.out:
            self._in(_AT_ONCE, lambda: done(OmfsNodeAnswer(ok=True, state="out", processes=1)))
            return
        why = self._trouble(NodeAction.OUT, part.node)
        seconds, most = part.size / self.rate, _PART_FOR_OUT * timeout
        if why == "slow" or seconds > most:
            seconds, why = most, "timeout"
        elif why == "refused":
            seconds = _AT_ONCE
        elif self._room(part.node, method) < part.size:
            seconds, why = _AT_ONCE, "no_swap_space"
        part.moving = NodeAction.OUT

        def moved() -> None:
            if part.moving is not NodeAction.OUT or not self._is_there(record, part):
                done(OmfsNodeAnswer(ok=True, state="none"))
                return
            part.moving = None
            if why or self._room(part.node, method) < part.size:
                if not suspended:
                    self._continue(record, part, "omfs-node")
                done(replace(failed(why or "no_swap_space", why.replace("_", " ")), state="running"))
                return
            part.out = method
            if not part.stopped:
                self._violated(f"job {record.id} computes on {part.node} while its memory is out")
            took = part.size / self.rate
            size = part.size
            done(OmfsNodeAnswer(True, "", "", "out", 1, 1, moved=size, freed=size, seconds=took, slowest=took))

        self._in(seconds, moved)

    def _bring_in(self, record: Record, part: Part, request: Request, done: Answered) -> None:
        let_run = bool(request["continue"])
        why = self._trouble(NodeAction.IN, part.node)
        part.moving = NodeAction.IN

        def moved() -> None:
            if not self._is_there(record, part):
                done(OmfsNodeAnswer(ok=True, state="none"))
                return
            part.moving = None
            others = sum(other.size for _, other in self._resident(part.node) if other is not part)
            if why or (part.out and others + part.size > self.memory):
                done(replace(failed(why or "no_ve_memory", "too little VE memory"), state="out"))
                return
            size, part.out = part.size if part.out else 0, ""
            if let_run:
                self._continue(record, part, "omfs-node")
            took = size / self.rate
            state = "out" if part.stopped else "running"
            done(OmfsNodeAnswer(True, "", "", state, 1, 1, moved=size, seconds=took, slowest=took))

        self._in(part.size / self.rate if part.out else _AT_ONCE, moved)

    def _continue(self, record: Record, part: Part, who: str) -> None:
        """SIGCONT."""
        if part.out or part.moving is not None:
            where = "out" if part.out else f"being moved {part.moving}"
            self._violated(f"job {record.id} is continued by {who} on {part.node} while its memory is {where}")
        if who == "omfs-node" and record.state is JobState.SUSPENDED:
            self._violated(f"job {record.id} is continued on {part.node} while Slurm has it suspended")
        part.stopped = False
        if not any(other.stopped for other in self._parts_of(record)):
            self.slurm.go_on(record)

    # -- parts of jobs ----------------------------------------------------------------------------------------
    def _part(self, record: Record, node: str) -> Part:
        key = (record.id, record.started, node)
        if key not in self._parts:
            self._parts[key] = Part(record.id, node, self.sizes.get(record.id, 0))
        return self._parts[key]

    def _parts_of(self, record: Record) -> list[Part]:
        return [self._part(record, taken.node) for taken in record.taken]

    def _is_there(self, record: Record, part: Part) -> bool:
        return record.active and self._parts.get((record.id, record.started, part.node)) is part

    def _alive(self) -> Iterator[tuple[Record, Part]]:
        """Every part of every job whose processes are there."""
        for record in self.slurm.records.values():
            if record.active:
                for part in self._parts_of(record):
                    yield record, part

    def _resident(self, node: str) -> list[tuple[Record, Part]]:
        return [(record, part) for record, part in self._alive() if part.node == node and not part.out]

    def _room(self, node: str, method: str) -> int:
        used = sum(part.size for _, part in self._alive() if part.node == node and part.out == method)
        return self.room.get(method, 0) - used

    def _trouble(self, do: NodeAction, node: str) -> str:
        for trouble in self._troubles:
            if trouble.do is do and trouble.times > 0 and trouble.node in ("", node):
                trouble.times -= 1
                return trouble.why
        return ""

    def _violated(self, what: str) -> None:
        line = f"{self.slurm.now:.2f}: {what}"
        if line not in self.violations:
            self.violations.append(line)

    def _in(self, seconds: float, happen: Callable[[], None]) -> None:
        self.slurm.plan(self.slurm.now + seconds, happen)

    def _with_lock(self, key: tuple[int, str], begin: Callable[[], None]) -> None:
        if key in self._locked:
            self._locked[key].append(begin)
        else:
            self._locked[key] = []
            begin()

    def _unlock(self, key: tuple[int, str]) -> None:
        waiting = self._locked.pop(key)
        if waiting:
            self._locked[key] = waiting[1:]
            self.slurm.plan(self.slurm.now, waiting[0])


class FakeNodeWorkQueue:
    """As ``work_queue.ThreadedWorkQueue``, without threads: one work at a time for a job, the newest next."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._now: dict[str, NodeWork] = {}
        self._next: dict[str, NodeWork] = {}
        self._seen: dict[str, NodeWorkStatus] = {}
        self._is_closed = False

    def ask(self, work: NodeWork) -> None:
        self._nodes.slurm.catch_up()
        if self._next.get(work.ref) == work:
            return
        self._seen[work.ref] = NodeWorkStatus(work.do, work.method, NodeWorkState.UNDER_WAY, self._time, work.resume)
        if self._now.get(work.ref) == work:
            self._next.pop(work.ref, None)
        elif work.ref in self._now:
            self._next[work.ref] = work
        else:
            self._begin(work)

    def seen(self, ref: str) -> NodeWorkStatus | None:
        return self._seen.get(ref)

    def forget(self, ref: str) -> None:
        self._seen.pop(ref, None)
        self._next.pop(ref, None)

    def close(self) -> None:
        self._is_closed = True
        self._nodes.hang_up()

    @property
    def _time(self) -> float:
        return self._nodes.slurm.now

    def _begin(self, work: NodeWork) -> None:
        self._now[work.ref] = work
        self._call(work, partial(self._answered, work))

    def _call(self, work: NodeWork, then: Callable[[dict[str, OmfsNodeAnswer]], None]) -> None:
        answers: dict[str, OmfsNodeAnswer] = {}

        def got(node: str, answer: OmfsNodeAnswer) -> None:
            answers[node] = answer
            if len(answers) == len(work.nodes) and not self._is_closed:
                then(answers)

        for node in work.nodes:
            self._nodes.ask(node, work.request(), work.timeout, partial(got, node))

    def _answered(self, work: NodeWork, answers: dict[str, OmfsNodeAnswer]) -> None:
        seen = combined_status(work, answers, self._time)
        if seen.state is not NodeWorkState.FAILED or work.do is not NodeAction.OUT:
            self._give_back(work, seen)
            return

        def undone(back: dict[str, OmfsNodeAnswer]) -> None:
            left = [node for node, answer in answers.items() if _may_be_out(answer) and not back[node].ok]
            message = f"{seen.message}; may still be stopped on {left[0]}" if left else seen.message
            self._give_back(work, _failed(work, seen.why, message, self._time))

        self._call(_undo(work), undone)

    def _give_back(self, work: NodeWork, seen: NodeWorkStatus) -> None:
        del self._now[work.ref]
        following = self._next.pop(work.ref, None)
        if following is not None:
            self._begin(following)
        elif work.ref in self._seen:
            self._seen[work.ref] = seen


class FakeTransport:
    """The failsafe's way to the same nodes: each call lets virtual time pass until all have answered."""

    def __init__(self, nodes: Nodes, pass_time: Callable[[float], None]) -> None:
        self._nodes = nodes
        self._pass_time = pass_time

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        answers: dict[str, OmfsNodeAnswer] = {}
        self._nodes.slurm.catch_up()
        for node in nodes:
            self._nodes.ask(node, request, timeout, partial(answers.__setitem__, node))
        for _ in range(10_000):
            if len(answers) == len(nodes):
                return answers
            self._pass_time(0.1)
            self._nodes.slurm.catch_up()
        raise AssertionError(f"no answer from {set(nodes) - set(answers)}")
