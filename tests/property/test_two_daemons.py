"""Two daemons, one lease: if either is paused, and however slow the file system is, two never decide at once.

The daemons are the real ones as far as the lease goes, on a real directory. Wherever one of them looks at the
directory, changes it, or is about to send an order, it may be paused while time passes and the other one goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.daemon.leadership.candidate import Candidate
from omfs_daemon.daemon.leadership.holder import LeaseHolder
from omfs_daemon.daemon.leadership.leadership import Leadership, LeaseLost
from omfs_daemon.daemon.leadership.lease import CONTROLLER_AWAY, EXPIRY, FRESH, Controller, Lease, LeaseView, Stand
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.timed_calls import Answer, TimedCalls

ORDER_TIMEOUT = 10.0
FASTEST = 1.05
"""Clocks of two machines run at speeds that differ by no more than that (in truth by a thousandth of it)."""

pauses = st.sampled_from([0.0, 0.0, 0.1, 2.5, 8.0, FRESH, EXPIRY + 1, CONTROLLER_AWAY + 1, 100.0])
# Which daemon acts next; at which point it is paused and how long, how often the other one acts meanwhile, and whether
# the controller fails over to that one's host then.
turns = st.lists(
    st.tuples(
        st.sampled_from(["go", "go", "go", "move", "quit", "kill", "copy"]),
        st.sampled_from([0, 1]),
        st.integers(0, 9),
        pauses,
        st.sampled_from([0, 3, 20, 20]),
        st.sampled_from([True, True, False]),
    ),
    min_size=25,
    max_size=60,
)


class World:
    """``now`` is true time. What has happened: when which epoch was taken, and decided, and which orders Slurm took."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 1000.0
        self.beside = 0
        self.epoch_on_disk = 0
        self.taken: list[tuple[float, int]] = []
        self.decided: list[tuple[float, int]] = []
        self.marked: list[tuple[float, int]] = []
        self.requeued: list[tuple[float, float, int]] = []
        self.paused: tuple[int, float, Callable[[], None]] | None = None
        """At which point from now on the daemon that acts is paused, for how long, and what happens meanwhile."""

    def copy_lease(self, how: int) -> None:
        """Somebody makes one by hand: of the same epoch or a later one, renewed more often or given up."""
        lease = LeaseDirectory(self.directory).look().lease
        if lease is not None:
            renewals = None if how % 3 == 0 else (lease.renewals or 0) + 50 * how
            (self.directory / Lease(lease.epoch + how % 2, renewals).name).touch()

    def point(self) -> None:
        """A daemon may be paused here."""
        self.now += 0.01
        if self.paused is None:
            return
        after, seconds, meanwhile = self.paused
        if after > 0:
            self.paused = (after - 1, seconds, meanwhile)
            return
        self.paused = None
        meanwhile()
        self.now += seconds


class SlowDirectory(LeaseDirectory):
    def __init__(self, world: World) -> None:
        super().__init__(world.directory)
        self._world = world

    def look(self) -> LeaseView:
        self._world.point()
        found = super().look()
        self._world.point()
        return found

    def _renamed(self, old: object, new: object) -> bool:
        self._world.point()
        done = super()._renamed(old, new)  # type: ignore[arg-type]
        self._world.point()
        return done

    def _name_holder(self, epoch: int, holder: LeaseHolder) -> bool:
        done = super()._name_holder(epoch, holder)
        self._world.point()
        return done


class AtOnce(TimedCalls):
    """The model's pauses are the file system's, too."""

    def run(self, call: Callable[[], Answer]) -> Answer:
        return call()


class ModelDaemon:
    """``speed`` and ``offset`` of its clock."""

    def __init__(self, world: World, number: int, speed: float, offset: float) -> None:
        self.world, self.number, self.speed, self.offset = world, number, speed, offset
        self.seen_at = self.clock()
        self.start()

    def start(self) -> None:
        own = LeaseHolder(f"ctl{self.number}", "1", "same")
        self.leadership: Leadership | None = None
        self.waits_until = 0.0
        self.candidate = Candidate(
            SlowDirectory(self.world),
            lambda: own,
            lambda: Controller(f"ctl{self.world.beside}", self.world.beside == self.number),
            lambda: self.seen_at,
            self._check,
            AtOnce(1.0),
            AtOnce(1.0),
            self.clock,
        )

    def _check(self) -> str:
        self.world.point()
        return ""

    def clock(self) -> float:
        return self.world.now * self.speed + self.offset

    def step(self) -> None:
        """What the loop does once: look, or renew, decide, and order."""
        if self.world.beside == self.number:
            self.seen_at = self.clock()
        if self.leadership is None:
            self.leadership = self.candidate.step()
            if self.leadership is not None:
                self.world.taken.append((self.world.now, self.leadership.epoch))
                self.world.epoch_on_disk = max(self.world.epoch_on_disk, self.leadership.epoch)
                self.waits_until = self.clock() + ORDER_TIMEOUT
            return
        try:
            self.leadership.renew()
            if self.clock() < self.waits_until:
                return
            self.leadership.require()
            self.world.decided.append((self.world.now, self.leadership.epoch))
            self.world.point()
            for send in (self._hold, self._requeue):
                self.leadership.require()
                checked = self.world.now
                self.world.point()
                send(self.leadership.epoch, checked)
        except LeaseLost:
            if self.leadership.is_lost:
                self.leadership = None

    def _hold(self, epoch: int, checked: float) -> None:
        if epoch >= self.world.epoch_on_disk:  # as job_submit.lua
            self.world.marked.append((self.world.now, epoch))

    def _requeue(self, epoch: int, checked: float) -> None:
        self.world.requeued.append((checked, self.world.now, epoch))

    def quit(self) -> None:
        if self.leadership is not None:
            self.leadership.give_up()
            self.leadership = None


@given(turns, st.sampled_from([1.0, FASTEST]), st.sampled_from([0.0, -900.0, 1e6]))
def test_never_two_decide_and_no_late_mark_is_taken(
    turns: list[tuple[str, int, int, float, int, bool]], speed: float, offset: float
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        daemons = [ModelDaemon(world, 0, 1.0, 0.0), ModelDaemon(world, 1, speed, offset)]
        for _ in range(15):
            daemons[0].step()
            world.now += 1.0
        for act, which, point, seconds, meanwhile, fails_over in turns:
            daemon, other = daemons[which], daemons[1 - which]

            def others_turn(other: ModelDaemon = other, times: int = meanwhile, moves: bool = fails_over) -> None:
                if moves:
                    world.beside = other.number
                for _ in range(times):
                    other.step()
                    world.now += 2.0

            if act == "move":
                world.beside = 1 - world.beside
            elif act == "quit":
                daemon.quit()
            elif act == "kill":
                daemon.start()
            elif act == "copy":
                world.copy_lease(point)
            world.paused = (point, seconds, others_turn)
            daemon.step()
            world.paused = None
            world.now += 1.0
        check(world)


def check(world: World) -> None:
    epochs = [epoch for _, epoch in world.decided]
    assert epochs == sorted(epochs), "an epoch decided after a later one"
    marked = [epoch for _, epoch in world.marked]
    assert marked == sorted(marked), "a late mark was accepted"
    for checked, sent, epoch in world.requeued:
        assert all(checked < at for at, other in world.taken if other > epoch), "a lease counted that another one ended"
        later = [at for at, other in world.decided if other > epoch]
        # The window that is left: a sender that is paused between its last look at the clock and the system call.
        if later and sent > min(later):
            assert sent - checked > ORDER_TIMEOUT / FASTEST


def test_the_model_sees_takeovers_and_late_orders() -> None:
    """It would be worthless if the second daemon never acted."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        first, second = ModelDaemon(world, 0, 1.0, 0.0), ModelDaemon(world, 1, 1.0, 50.0)
        for _ in range(20):
            first.step()
            second.step()
            world.now += 1.0
        assert second.candidate.decision.stand is Stand.STAND_BY and world.decided[-1][1] == 1

        def meanwhile() -> None:
            world.beside = 1
            for _ in range(40):
                second.step()
                world.now += 1.0

        # Paused between its look at the clock and the order, and then at once before the next order.
        world.paused = (3, 0.0, meanwhile)
        first.step()
        assert {epoch for _, epoch in world.decided} == {1, 2}
        assert world.marked[-1][1] == 2, "the late mark is refused"
        assert all(epoch == 2 for _, sent, epoch in world.requeued if sent >= world.decided[-1][0])
        first.step()
        assert first.leadership is None
        check(world)
