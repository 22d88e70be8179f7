"""What is asked of nodes and what came of it: work in the background, one at a time for a job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from omfs_daemon.daemon.node_client.node_answers import Answer
from omfs_daemon.daemon.node_client.node_answers import failed
from omfs_daemon.daemon.node_client.node_answers import one_line
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.preemption.methods.node_work import Do
from omfs_daemon.preemption.methods.node_work import Work
from omfs_daemon.preemption.methods.node_work import WorkSeen
from omfs_daemon.preemption.methods.node_work import WorkState
from omfs_daemon.preemption.methods.node_work import with_costs_of
from typing import Protocol
import structlog

# omfs-node answers even when its time is out, and then takes up to a few seconds to put things back.
_BRING_BACK_TIMEOUT = 60.0


class Desk:
    """Has work done by at most ``workers`` threads, one job's works one after the other.

    ``wake`` is called, from a worker's thread, whenever a work is over. Every call to a node has its time-out, so a
    hung node keeps one worker for no longer than that.
    """

    def __init__(
        self, transport: Transport, clock: Callable[[], float], wake: Callable[[], None], workers: int = 8
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._wake = wake
        self._condition = threading.Condition()
        self._now: dict[str, Work] = {}
        self._next: dict[str, Work] = {}
        self._ready: deque[str] = deque()
        self._seen: dict[str, WorkSeen] = {}
        self._came_in: dict[str, WorkSeen] = {}
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"omfs-desk-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, work: Work) -> None:
        """Have it done. The same work under way or waiting is not begun twice; another one for the same job waits
        until the one under way is over, and only the newest wish is kept. A work that is over is done again."""
        with self._condition:
            if self._is_closed or self._next.get(work.ref) == work:
                return
            if self._now.get(work.ref) == work:
                self._next.pop(work.ref, None)  # what was wished after it is wished no more
                self._seen[work.ref] = self._begun(work)
                return
            before = self._seen.get(work.ref)
            if before is not None and before.state is WorkState.DONE and before.do is work.do is Do.IN:
                self._came_in[work.ref] = before
            else:
                self._came_in.pop(work.ref, None)
            if work.ref not in self._now and work.ref not in self._next:
                self._ready.append(work.ref)
            self._next[work.ref] = work
            self._seen[work.ref] = self._begun(work)
            self._condition.notify()

    def seen(self, ref: str) -> WorkSeen | None:
        """The newest wish for this job and how far it is; None if there is none."""
        with self._condition:
            return self._seen.get(ref)

    def forget(self, ref: str) -> None:
        """Drop what is known of a job, and what has not begun yet; what is under way goes on, unseen."""
        with self._condition:
            self._seen.pop(ref, None)
            self._came_in.pop(ref, None)
            self._next.pop(ref, None)

    def close(self) -> None:
        """Begin nothing more. What is under way ends on the nodes by itself; nobody waits for it."""
        with self._condition:
            self._is_closed = True
            self._next.clear()
            self._ready.clear()
            self._condition.notify_all()

    def _begun(self, work: Work) -> WorkSeen:
        return WorkSeen(work.do, work.method, WorkState.UNDER_WAY, self._clock(), work.resume)

    def _serve(self) -> None:
        while True:
            work = self._take()
            if work is None:
                return
            self._give_back(work, self._perform(work))

    def _take(self) -> Work | None:
        with self._condition:
            while True:
                if self._is_closed:
                    return None
                if self._ready:
                    ref = self._ready.popleft()
                    # Forgotten and asked again it stands here twice; under way, it comes back when that is over.
                    work = self._next.pop(ref, None) if ref not in self._now else None
                    if work is not None:
                        self._now[work.ref] = work
                        return work
                    continue
                self._condition.wait()

    def _give_back(self, work: Work, seen: WorkSeen) -> None:
        with self._condition:
            del self._now[work.ref]
            if work.ref in self._next:
                self._ready.append(work.ref)
                self._condition.notify()
            elif work.ref in self._seen:  # else it was forgotten meanwhile
                self._seen[work.ref] = with_costs_of(self._came_in.get(work.ref), seen)
            is_closed = self._is_closed
        if not is_closed:
            self._wake()

    def _perform(self, work: Work) -> WorkSeen:
        answers = self._call(work)
        seen = judge(work, answers, self._clock())
        if seen.state is WorkState.FAILED and work.do is Do.OUT:
            # A node that did not answer may have done it all the same: all are told, as it does no harm.
            undone = self._call(_undo(work))
            left = [node for node, answer in answers.items() if _may_be_out(answer) and not undone[node].ok]
            if left:
                message = f"{seen.message}; may still be stopped on {left[0]}: {undone[left[0]].message}"
                return _failed(work, seen.why, message, self._clock())
        return seen

    def _call(self, work: Work) -> dict[str, Answer]:
        try:
            answers = self._transport.run(work.nodes, work.request(), work.timeout)
        except Exception as error:  # a thread that dies would leave the job under way for ever
            answers = dict.fromkeys(work.nodes, failed("unreachable", f"{type(error).__name__}: {error}"))
        return {node: answers.get(node, failed("unreachable", "no answer")) for node in work.nodes}


def judge(work: Work, answers: Mapping[str, Answer], now: float) -> WorkSeen:
    """A work is done when every node has done it; "out" only if there was something to stop at all."""
    bad = [(node, answer) for node, answer in answers.items() if not answer.ok]
    if bad or not answers:
        node, answer = bad[0] if bad else ("no node", failed("no_node", "the job has no nodes"))
        others = f" (and {len(bad) - 1} other nodes)" if len(bad) > 1 else ""
        return _failed(work, answer.why, f"{node}: {answer.message or answer.why}{others}", now)
    if work.do is Do.OUT:
        still = [node for node, answer in answers.items() if answer.state not in ("out", "none")]
        if still:
            return _failed(work, "not_verified", f"{still[0]}: {answers[still[0]].state} after it was moved out", now)
        if not any(answer.processes for answer in answers.values()):
            return _failed(work, "no_process", "no node has a process of this job", now)
    every: Sequence[Answer] = list(answers.values())
    return WorkSeen(
        work.do,
        work.method,
        WorkState.DONE,
        now,
        work.resume,
        moved=sum(answer.moved for answer in every),
        freed=sum(answer.freed for answer in every),
        seconds=max(answer.seconds for answer in every),
        slowest=max(answer.slowest for answer in every),
        processes=sum(answer.processes for answer in every),
        memory=_together([answer.state for answer in every]),
    )


def _together(states: Sequence[str]) -> str:
    found = set(states) - {"none"}
    return found.pop() if len(found) == 1 else "mixed" if found else "none"


def _undo(work: Work) -> Work:
    return Work(
        work.ref,
        work.job_id,
        work.uid,
        work.nodes,
        Do.IN,
        work.method,
        resume=not work.suspended,
        options=work.options,
        slurm=work.slurm,
        timeout=max(work.timeout, _BRING_BACK_TIMEOUT),
    )


def _may_be_out(answer: Answer) -> bool:
    """omfs-node puts back what it could not do; not so if it was done, or if nobody knows."""
    return answer.ok or answer.why in ("timeout", "unreachable", "bad_answer", "fault") or answer.state == "mixed"


def _failed(work: Work, why: str, message: str, now: float) -> WorkSeen:
    return WorkSeen(work.do, work.method, WorkState.FAILED, now, work.resume, why=why, message=one_line(message))


class NodeWorkQueue(Protocol):
    """Work on nodes; see :mod:`omfs_daemon.daemon.node_client.work_queue`."""

    def ask(self, work: Work) -> None: ...

    def seen(self, ref: str) -> WorkSeen | None: ...

    def forget(self, ref: str) -> None: ...

    def close(self) -> None: ...


class NoDesk:
    """Where no way to the nodes is configured: nothing is done there."""

    def ask(self, work: Work) -> None:
        structlog.get_logger("nodes").error("no way to the nodes is configured", job=work.ref, method=work.method)

    def seen(self, ref: str) -> WorkSeen | None:
        return None

    def forget(self, ref: str) -> None:
        return None

    def close(self) -> None:
        return None
