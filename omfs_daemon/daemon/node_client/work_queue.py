"""Work on nodes in the background, one at a time per job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer, failed, printable_line
from omfs_daemon.daemon.node_client.transport import Transport
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWork, NodeWorkState, NodeWorkStatus, with_costs_of
from omfs_daemon.protocol.node_request import MIXED, MOVED_OUT, NO_PROCESS

# omfs-node answers even after its timeout, and then takes up to a few seconds to undo.
_UNDO_TIMEOUT = 60.0


class ThreadedWorkQueue:
    """Runs work in at most ``workers`` threads, a job's items one after the other.

    ``wake`` is called, from a worker's thread, whenever an item is done. Every call to a node has a timeout, so a hung
    node occupies a worker for no longer than that.
    """

    def __init__(
        self, transport: Transport, clock: Callable[[], float], wake: Callable[[], None], workers: int = 8
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._wake = wake
        self._condition = threading.Condition()
        self._now: dict[str, NodeWork] = {}
        self._next: dict[str, NodeWork] = {}
        self._ready: deque[str] = deque()
        self._seen: dict[str, NodeWorkStatus] = {}
        self._came_in: dict[str, NodeWorkStatus] = {}
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"omfs-node-work-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, work: NodeWork) -> None:
        """Queue work. The same work is not started twice while it waits or is under way; other work for the same job
        waits until the current one is done, and only the newest is kept. Work that is done is started again."""
        with self._condition:
            if self._is_closed or self._next.get(work.ref) == work:
                return
            if self._now.get(work.ref) == work:
                self._next.pop(work.ref, None)  # what was queued behind it is dropped
                self._seen[work.ref] = self._begun(work)
                return
            before = self._seen.get(work.ref)
            if before is not None and before.state is NodeWorkState.DONE and before.do is work.do is NodeAction.IN:
                self._came_in[work.ref] = before
            else:
                self._came_in.pop(work.ref, None)
            if work.ref not in self._now and work.ref not in self._next:
                self._ready.append(work.ref)
            self._next[work.ref] = work
            self._seen[work.ref] = self._begun(work)
            self._condition.notify()

    def seen(self, ref: str) -> NodeWorkStatus | None:
        """The newest work for this job and its state; None if there is none."""
        with self._condition:
            return self._seen.get(ref)

    def forget(self, ref: str) -> None:
        """Drop what is known of a job, and work that has not begun; work under way goes on, unobserved."""
        with self._condition:
            self._seen.pop(ref, None)
            self._came_in.pop(ref, None)
            self._next.pop(ref, None)

    def close(self) -> None:
        """Begin nothing more. Work under way ends on the nodes by itself and is not waited for."""
        with self._condition:
            self._is_closed = True
            self._next.clear()
            self._ready.clear()
            self._condition.notify_all()

    def _begun(self, work: NodeWork) -> NodeWorkStatus:
        return NodeWorkStatus(work.do, work.method, NodeWorkState.UNDER_WAY, self._clock(), work.resume)

    def _serve(self) -> None:
        while True:
            work = self._take()
            if work is None:
                return
            self._finish(work, self._perform(work))

    def _take(self) -> NodeWork | None:
        with self._condition:
            while True:
                if self._is_closed:
                    return None
                if self._ready:
                    ref = self._ready.popleft()
                    # Forgotten and queued again it is listed twice; if under way, it is listed again when done.
                    work = self._next.pop(ref, None) if ref not in self._now else None
                    if work is not None:
                        self._now[work.ref] = work
                        return work
                    continue
                self._condition.wait()

    def _finish(self, work: NodeWork, seen: NodeWorkStatus) -> None:
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

    def _perform(self, work: NodeWork) -> NodeWorkStatus:
        answers = self._call(work)
        seen = combined_status(work, answers, self._clock())
        if seen.state is NodeWorkState.FAILED and work.do is NodeAction.OUT:
            # A node that did not answer may have done it all the same: undoing is harmless on all.
            undone = self._call(_undo(work))
            left = [node for node, answer in answers.items() if _may_be_out(answer) and not undone[node].ok]
            if left:
                message = f"{seen.message}; may still be stopped on {left[0]}: {undone[left[0]].message}"
                return _failed(work, seen.why, message, self._clock())
        return seen

    def _call(self, work: NodeWork) -> dict[str, OmfsNodeAnswer]:
        try:
            answers = self._transport.run(work.nodes, work.request(), work.timeout)
        except Exception as error:  # a thread that dies would leave the job under way forever
            answers = dict.fromkeys(work.nodes, failed("unreachable", f"{type(error).__name__}: {error}"))
        return {node: answers.get(node, failed("unreachable", "no answer")) for node in work.nodes}


def combined_status(work: NodeWork, answers: Mapping[str, OmfsNodeAnswer], now: float) -> NodeWorkStatus:
    """Work is done when every node has done it; "out" only if there was a process to move out."""
    bad = [(node, answer) for node, answer in answers.items() if not answer.ok]
    if bad or not answers:
        node, answer = bad[0] if bad else ("no node", failed("no_node", "the job has no nodes"))
        others = f" (and {len(bad) - 1} other nodes)" if len(bad) > 1 else ""
        return _failed(work, answer.why, f"{node}: {answer.message or answer.why}{others}", now)
    if work.do is NodeAction.OUT:
        still = [node for node, answer in answers.items() if answer.state not in (MOVED_OUT, NO_PROCESS)]
        if still:
            return _failed(work, "not_verified", f"{still[0]}: {answers[still[0]].state} after it was moved out", now)
        if not any(answer.processes for answer in answers.values()):
            return _failed(work, "no_process", "no node has a process of this job", now)
    every: Sequence[OmfsNodeAnswer] = list(answers.values())
    return NodeWorkStatus(
        work.do,
        work.method,
        NodeWorkState.DONE,
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
    found = set(states) - {NO_PROCESS}
    return found.pop() if len(found) == 1 else MIXED if found else NO_PROCESS


def _undo(work: NodeWork) -> NodeWork:
    return NodeWork(
        work.ref,
        work.job_id,
        work.uid,
        work.nodes,
        NodeAction.IN,
        work.method,
        resume=not work.suspended,
        options=work.options,
        slurm=work.slurm,
        timeout=max(work.timeout, _UNDO_TIMEOUT),
    )


def _may_be_out(answer: OmfsNodeAnswer) -> bool:
    """omfs-node undoes what it could not complete; so only if it was done, or if that is unknown."""
    return answer.ok or answer.why in ("timeout", "unreachable", "bad_answer", "fault") or answer.state == MIXED


def _failed(work: NodeWork, why: str, message: str, now: float) -> NodeWorkStatus:
    return NodeWorkStatus(
        work.do, work.method, NodeWorkState.FAILED, now, work.resume, why=why, message=printable_line(message)
    )


class NodeWorkQueue(Protocol):
    """What the daemon needs of a queue of work on nodes; :class:`ThreadedWorkQueue` documents it."""

    def ask(self, work: NodeWork) -> None: ...

    def seen(self, ref: str) -> NodeWorkStatus | None: ...

    def forget(self, ref: str) -> None: ...

    def close(self) -> None: ...


class NoNodeWorkQueue:
    """Where no worker for the nodes is configured: nothing is done there."""

    def ask(self, work: NodeWork) -> None:
        structlog.get_logger("nodes").error("node_worker_not_configured", job=work.ref, method=work.method)

    def seen(self, ref: str) -> NodeWorkStatus | None:
        return None

    def forget(self, ref: str) -> None:
        return None

    def close(self) -> None:
        return None
