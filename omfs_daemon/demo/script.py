"""The story of the demo, scene by scene, and what must come true in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.api.history_view import PastStopView
from omfs_daemon.demo.demo_cluster import Fate
from omfs_daemon.demo.demo_cluster import Part
from omfs_daemon.demo.demo_cluster import Stage
from omfs_daemon.demo.screen import View

# Of equals the one that started last is stopped first: physics stops bio-4 and bio-3, the alarm bio-2.
BIO = (
    Part("bio-1", "bio", 25, "requeue"),
    Part("bio-2", "bio", 25, "requeue"),
    Part("bio-3", "bio", 25, "suspend"),
    Part("bio-4", "bio", 25, "suspend"),
)
PHYSICS = (Part("physics-1", "physics", 16), Part("physics-2", "physics", 16))
ALARM = Part("alarm-1", "alarm", 8, partition="urgent")
MORE = Part("physics-3", "physics", 5)

_ENTITLED = {"bio": 8, "physics": 8, "alarm": 0}

_UP_LIMIT = 20.0
_ENTITLED_LIMIT = 10.0
_URGENT_LIMIT = 5.0
_HELD_LIMIT = 10.0
_END_LIMIT = 150.0
_TO_READ = 4.0


class Play:
    """One performance: what was submitted, what was seen, and which expectations were broken."""

    def __init__(self, view: View) -> None:
        self.broken: list[str] = []
        self.parts: dict[int, Part] = {}
        self.waited: dict[str, float] = {}
        self.stopped: set[str] = set()
        self.fates: dict[str, Fate] = {}
        self.stops: list[PastStopView] = []
        self._view = view
        self._submitted: dict[str, float] = {}
        self._jobs: dict[str, Job] = {}

    @property
    def lost(self) -> int:
        """Jobs that were submitted and not seen to have done all their work."""
        return sum(not self._is_complete(part) for part in self.parts.values())

    def name_of(self, ref: str) -> str:
        """The job's name in the story."""
        part = self.parts.get(int(ref)) if ref.isdecimal() else None
        return part.name if part else f"job {ref}"

    def perform(self, stage: Stage) -> None:
        """All scenes; an error ends it, a broken expectation does not."""
        self._stage = stage
        self._began = stage.now()
        self._two_accounts()
        self._bio_borrows()
        self._physics_takes_back()
        self._alarm()
        self._physics_wants_more()
        self._all_come_back()
        self._find_out()

    # -- the scenes --------------------------------------------------------------------------------
    def _two_accounts(self) -> None:
        self._view.scene(
            "1. Two accounts share the machine",
            "It has four nodes of four CPUs. bio and physics are entitled to 50 % each, alarm to nothing.",
        )
        self._expect(
            "bio and physics are entitled to eight CPUs each", lambda: self._entitled() == _ENTITLED, _UP_LIMIT
        )
        self._pass(_TO_READ)

    def _bio_borrows(self) -> None:
        self._view.scene(
            "2. bio borrows what is idle",
            "bio submits four jobs of four CPUs, which may be stopped. Nobody else wants the machine: bio has it all.",
        )
        self._submit(*BIO)
        self._expect("bio's four jobs run, on all sixteen CPUs", lambda: self._run(*BIO), _UP_LIMIT)
        self._pass(_TO_READ)

    def _physics_takes_back(self) -> None:
        self._view.scene(
            "3. physics takes back what is its own",
            "physics submits two jobs of four CPUs. It is entitled to them, so omfsd stops two of bio's jobs, no more.",
        )
        self._submit(*PHYSICS)
        self._expect("physics has its eight CPUs", lambda: self._run(*PHYSICS), _ENTITLED_LIMIT)
        self._pass(_TO_READ)

    def _alarm(self) -> None:
        self._view.scene(
            "4. An urgent job",
            "alarm owns nothing, but its jobs are urgent: they start at once, and omfsd makes room for them.",
        )
        self._submit(ALARM)
        self._expect("the urgent job runs", lambda: self._run(ALARM), _URGENT_LIMIT)
        if ALARM.name in self.waited:
            self._view.say(f"   from sbatch to RUNNING it took {self.waited[ALARM.name]:.2f} s")
        self._pass(_TO_READ)

    def _physics_wants_more(self) -> None:
        self._view.scene(
            "5. What may never be stopped may not borrow",
            "physics uses all that it owns and submits one more job, which may not be stopped. So nothing is lent to "
            "it: it is held until it fits into what physics owns.",
        )
        self._submit(MORE)
        self._expect("physics' job beyond its entitlement is held", self._more_is_held, _HELD_LIMIT)

    def _all_come_back(self) -> None:
        self._view.scene(
            "6. The stopped jobs come back",
            "As CPUs become free, the held job is let go, suspended jobs go on where they were, and requeued ones "
            "start again.",
        )
        self._expect("every job has ended", lambda: not self._jobs, _END_LIMIT)

    # -- what happens in them ------------------------------------------------------------------------
    def _submit(self, *parts: Part) -> None:
        for part in parts:
            self._submitted[part.name] = self._stage.now()
            self.parts[self._stage.submit(part)] = part

    def _expect(self, text: str, condition: Callable[[], bool], limit: float) -> None:
        """Watch until it comes true; if it does not within ``limit`` seconds, it is broken."""
        begin = self._stage.now()
        while not self._look_for(condition):
            if self._stage.now() - begin > limit:
                self._broken(f"not within {limit:g} s: {text}")
                return
        self._view.say(f"-> {text} (after {self._stage.now() - begin:.1f} s)")

    def _pass(self, seconds: float) -> None:
        """Time to read, and for jobs to run."""
        end = self._stage.now() + seconds
        while self._stage.now() < end:
            self._look_for(lambda: False)

    def _look_for(self, condition: Callable[[], bool]) -> bool:
        """Look once whether it holds; if it does not, a moment passes."""
        self._look()
        if condition():
            return True
        self._stage.tick()
        return False

    def _look(self) -> None:
        jobs = [job for job in self._stage.jobs() if job.id in self.parts]
        now = self._stage.now()
        self._jobs = {self.parts[job.id].name: job for job in jobs}
        for name, job in self._jobs.items():
            if job.state is JobState.RUNNING:
                self.waited.setdefault(name, now - self._submitted[name])
            if job.state is JobState.SUSPENDED or job.restarts:
                self.stopped.add(name)
        self._view.picture(self._stage.status(), jobs, now - self._began)

    def _run(self, *parts: Part) -> bool:
        return all(part.name in self._jobs and self._jobs[part.name].state is JobState.RUNNING for part in parts)

    def _more_is_held(self) -> bool:
        job = self._jobs.get(MORE.name)
        return job is not None and job.state is JobState.PENDING and job.hold is Hold.ADMIN

    def _entitled(self) -> dict[str, int]:
        return {row["account"]: row["entitled"] for row in self._stage.status()["accounts"]}

    def _broken(self, text: str) -> None:
        self.broken.append(text)
        self._view.say(f"-> BROKEN: {text}")

    # -- what became of it ---------------------------------------------------------------------------
    def _find_out(self) -> None:
        self.fates = {part.name: self._stage.fate(part, job_id) for job_id, part in self.parts.items()}
        self.stops = self._stage.stops()[::-1]
        checks = chain(
            self._check_stops("physics", PHYSICS, 2),
            self._check_stops("the urgent job", (ALARM,), 1),
            *(self._check_fate(part) for part in self.parts.values()),
        )
        for text in checks:
            self._broken(text)

    def _check_stops(self, who: str, beneficiaries: Sequence[Part], right: int) -> list[str]:
        names = {part.name for part in beneficiaries}
        victims = [
            self.name_of(victim["job"])
            for stop in self.stops
            for victim in stop["victims"]
            if self.name_of(stop["beneficiary"]) in names
        ]
        if len(victims) == right and set(victims) <= {part.name for part in BIO}:
            return []
        return [f"for {who} {right} of bio's jobs should have been stopped, but it was: {', '.join(victims) or 'none'}"]

    def _check_fate(self, part: Part) -> list[str]:
        fate, broken = self.fates[part.name], []
        if not self._is_complete(part):
            broken.append(f"{part.name} is lost: {fate}")
        if fate.starts > fate.restarts + 1:
            broken.append(
                f"{part.name} began its work {fate.starts} times, but Slurm restarted it {fate.restarts} times"
            )
        if not fate.restarts and fate.steps != part.work:
            broken.append(f"{part.name} never started over, so it should have worked {part.work} s, not {fate.steps} s")
        return broken

    def _is_complete(self, part: Part) -> bool:
        fate = self.fates.get(part.name)
        return fate is not None and fate.outcome == "COMPLETED" and fate.finished and fate.steps >= part.work
