"""What happens to nodes, and thereby to the jobs on them, as measured on 22.05.8.

A node that goes down frees at once all that its jobs have there: those that Slurm may requeue wait again, in the hold
that they have (a suspended one is held), and completing ones leave; others end with NODE_FAIL. A node that is drained,
reserved for maintenance, or about to be rebooted or powered down runs its jobs on and starts no others; suspended jobs
can be resumed there, and a reboot or a power-down waits for them, too. A slurmd that hangs is noticed after a while,
and its node goes down after SlurmdTimeout; until then orders are taken, but no job leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.fake_nodes import NOT_RESPONDING
from omfs_daemon.testing.fake_slurm.job_lifecycle import JobLifecycle
from omfs_daemon.testing.fake_slurm.scheduler import Scheduler

_NOTICED_AFTER = 15.0
"""Seconds until slurmctld notices that a slurmd hangs."""

_LOOKS_EVERY = 1.0


class NodeFailures(JobLifecycle):
    """What administrators and failures do to nodes. ``node_up`` ends all of it but ``let_not_fit``."""

    _scheduler: Scheduler

    @abstractmethod
    def catch_up(self) -> None:
        """Process all events that are due by now."""

    def let_not_fit(self, unfit: Callable[[Record], Collection[str]], is_said: bool = False) -> None:
        """From now on jobs never fit on these nodes, and nothing that Slurm shows of them tells so. ``is_said``: Slurm
        finds that they cannot ever run there (as with MemSpecLimit); else it looks as if they lacked resources."""
        self.catch_up()
        self._scheduler.unfit, self._scheduler.says_unfit = unfit, is_said
        self.wake()

    def node_down(self, name: str) -> None:
        """A node dies: its jobs are requeued (not held), or end if they may not be."""
        self.catch_up()
        self._lose(name)

    def node_up(self, name: str) -> None:
        """A node works again, and accepts jobs."""
        self.catch_up()
        node = self.fake_nodes[name]
        node.up, node.closed, node.stuck = True, "", False
        for record in self._on(name):
            if record.state is JobState.COMPLETING:
                self._at(self.now + self.timing.completing, record, self._leave)
        self.wake()

    def drain(self, name: str) -> None:
        """No new jobs on a node; those on it continue."""
        self._close(name, "DRAIN")

    def reserve(self, name: str) -> None:
        """A reservation for maintenance, with IGNORE_JOBS: the same."""
        self._close(name, "MAINTENANCE+RESERVED")

    def reboot(self, name: str) -> None:
        """``scontrol reboot ASAP``: the node is down from when its jobs have ended."""
        self._close(name, "DRAIN+REBOOT_REQUESTED")
        self._down_when_empty(name, "DRAIN+REBOOT_ISSUED")

    def power_down(self, name: str) -> None:
        """``state=power_down_asap``: likewise."""
        self._close(name, "DRAIN+POWER_DOWN")
        self._down_when_empty(name, "POWERED_DOWN")

    def stick(self, name: str) -> None:
        """From now on epilogs hang: what ends on the node is completing for ever."""
        self.catch_up()
        self.fake_nodes[name].stuck = True

    def hang(self, name: str) -> None:
        """slurmd hangs."""
        self.stick(name)
        self.plan(self.now + _NOTICED_AFTER, lambda: self._notice(name))
        self.plan(self.now + self.timing.slurmd_timeout, lambda: self._time_out(name))

    # -- inside ------------------------------------------------------------------------------------
    def _close(self, name: str, closed: str) -> None:
        self.catch_up()
        self.fake_nodes[name].closed = closed

    def _down_when_empty(self, name: str, then: str) -> None:
        closed = self.fake_nodes[name].closed

        def look() -> None:
            node = self.fake_nodes[name]
            if node.closed != closed or not node.up:
                return
            if next(self._on(name), None) is None:
                node.up, node.closed = False, then
            else:
                self.plan(self.now + _LOOKS_EVERY, look)

        look()

    def _notice(self, name: str) -> None:
        if self.fake_nodes[name].stuck:
            self.fake_nodes[name].closed = NOT_RESPONDING

    def _time_out(self, name: str) -> None:
        if self.fake_nodes[name].stuck:
            self._lose(name)

    def _lose(self, name: str) -> None:
        self.fake_nodes[name].up = False
        for record in list(self._on(name)):
            self._lose_node(record)
        self._schedule()

    def _on(self, name: str) -> Iterator[Record]:
        live = list(self._jobs.live.values())
        return (record for record in live if any(taken.node == name for taken in record.taken))

    def _lose_node(self, record: Record) -> None:
        if record.state is not JobState.COMPLETING:
            back = record.requeue and not record.what.interactive
            if not back:
                record.history.outcome, record.history.done = "NODE_FAIL", record.work(self.now)
            else:
                self._count_as_requeued(record)
            self._complete(record, back=back)
        self._free(record)
