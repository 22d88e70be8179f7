"""The steps of the demo, and what is expected in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.daemon.api.history_view import PastPreemptionView
from omfs_daemon.demo.demo_cluster import DemoCluster, DemoJob, DemoJobResult
from omfs_daemon.demo.screen import DemoScreen

# Of equals, the one that started last is preempted first: physics preempts bio-4 and bio-3, the alarm bio-2.
BIO = (
    DemoJob("bio-1", "bio", 25, "requeue"),
    DemoJob("bio-2", "bio", 25, "requeue"),
    DemoJob("bio-3", "bio", 25, "suspend"),
    DemoJob("bio-4", "bio", 25, "suspend"),
)
PHYSICS = (DemoJob("physics-1", "physics", 16), DemoJob("physics-2", "physics", 16))
ALARM = DemoJob("alarm-1", "alarm", 8, partition="urgent")
MORE = DemoJob("physics-3", "physics", 5)

_ENTITLED = {"bio": 8, "physics": 8, "alarm": 0}

_UP_LIMIT = 20.0
_ENTITLED_LIMIT = 10.0
_URGENT_LIMIT = 5.0
_HELD_LIMIT = 10.0
_END_LIMIT = 150.0
_TO_READ = 4.0


class DemoScript:
    """One run of the demo: the jobs, what was observed, and which expectations were not met."""

    def __init__(self, screen: DemoScreen) -> None:
        self.failures: list[str] = []
        self.submitted: dict[int, DemoJob] = {}
        self.waited: dict[str, float] = {}
        self.preempted: set[str] = set()
        self.results: dict[str, DemoJobResult] = {}
        self.preemptions: list[PastPreemptionView] = []
        self._screen = screen
        self._submit_times: dict[str, float] = {}
        self._jobs: dict[str, Job] = {}

    @property
    def lost(self) -> int:
        """Jobs that were submitted and not seen to have done all their work."""
        return sum(not self._is_complete(job) for job in self.submitted.values())

    def name_of(self, ref: str) -> str:
        """The job's name in the demo."""
        job = self.submitted.get(int(ref)) if ref.isdecimal() else None
        return job.name if job else f"job {ref}"

    def run(self, cluster: DemoCluster) -> None:
        """All steps; an error ends the demo, an expectation that is not met does not."""
        self._cluster = cluster
        self._began = cluster.now()
        self._two_accounts()
        self._bio_borrows()
        self._physics_takes_back()
        self._alarm()
        self._physics_wants_more()
        self._all_continue()
        self._collect_results()

    # -- the steps --------------------------------------------------------------------------------
    def _two_accounts(self) -> None:
        self._screen.step(
            "1. Two accounts share the cluster",
            "It has four nodes of four CPUs. bio and physics are entitled to 50 % each, alarm to nothing.",
        )
        self._expect(
            "bio and physics are entitled to eight CPUs each", lambda: self._entitled() == _ENTITLED, _UP_LIMIT
        )
        self._pass(_TO_READ)

    def _bio_borrows(self) -> None:
        self._screen.step(
            "2. bio borrows what is idle",
            "bio submits four preemptible jobs of four CPUs. Nobody else needs the cluster: bio gets all of it.",
        )
        self._submit(*BIO)
        self._expect("bio's four jobs run, on all sixteen CPUs", lambda: self._run(*BIO), _UP_LIMIT)
        self._pass(_TO_READ)

    def _physics_takes_back(self) -> None:
        self._screen.step(
            "3. physics reclaims its entitlement",
            "physics submits two jobs of four CPUs. It is entitled to them, so omfsd preempts two of bio's jobs.",
        )
        self._submit(*PHYSICS)
        self._expect("physics has its eight CPUs", lambda: self._run(*PHYSICS), _ENTITLED_LIMIT)
        self._pass(_TO_READ)

    def _alarm(self) -> None:
        self._screen.step(
            "4. An urgent job",
            "alarm has no entitlement, but its jobs are urgent: omfsd preempts others for them at once.",
        )
        self._submit(ALARM)
        self._expect("the urgent job runs", lambda: self._run(ALARM), _URGENT_LIMIT)
        if ALARM.name in self.waited:
            self._screen.report(f"   time from sbatch to RUNNING: {self.waited[ALARM.name]:.2f} s")
        self._pass(_TO_READ)

    def _physics_wants_more(self) -> None:
        self._screen.step(
            "5. Non-preemptible jobs may not borrow",
            "physics uses all of its entitlement and submits one more job, which is non-preemptible. It may not "
            "borrow: it is held until it fits into the entitlement of physics.",
        )
        self._submit(MORE)
        self._expect("physics' job beyond its entitlement is held", self._more_is_held, _HELD_LIMIT)

    def _all_continue(self) -> None:
        self._screen.step(
            "6. The preempted jobs continue",
            "As CPUs become free, the held job is released, suspended jobs resume, and requeued ones start again.",
        )
        self._expect("every job has ended", lambda: not self._jobs, _END_LIMIT)

    # -- carrying them out ------------------------------------------------------------------------
    def _submit(self, *jobs: DemoJob) -> None:
        for job in jobs:
            self._submit_times[job.name] = self._cluster.now()
            self.submitted[self._cluster.submit(job)] = job

    def _expect(self, text: str, condition: Callable[[], bool], limit: float) -> None:
        """Poll until it holds; not within ``limit`` seconds is a failure."""
        begin = self._cluster.now()
        while not self._observe(condition):
            if self._cluster.now() - begin > limit:
                self._fail(f"not within {limit:g} s: {text}")
                return
        self._screen.report(f"-> {text} (after {self._cluster.now() - begin:.1f} s)")

    def _pass(self, seconds: float) -> None:
        """Time to read the screen, and for jobs to run."""
        end = self._cluster.now() + seconds
        while self._cluster.now() < end:
            self._observe(lambda: False)

    def _observe(self, condition: Callable[[], bool]) -> bool:
        """Poll once; whether the condition holds. If not, a short time passes."""
        self._poll()
        if condition():
            return True
        self._cluster.tick()
        return False

    def _poll(self) -> None:
        jobs = [job for job in self._cluster.jobs() if job.id in self.submitted]
        now = self._cluster.now()
        self._jobs = {self.submitted[job.id].name: job for job in jobs}
        for name, job in self._jobs.items():
            if job.state is JobState.RUNNING:
                self.waited.setdefault(name, now - self._submit_times[name])
            if job.state is JobState.SUSPENDED or job.restarts:
                self.preempted.add(name)
        self._screen.show_state(self._cluster.status(), jobs, now - self._began)

    def _run(self, *jobs: DemoJob) -> bool:
        return all(job.name in self._jobs and self._jobs[job.name].state is JobState.RUNNING for job in jobs)

    def _more_is_held(self) -> bool:
        job = self._jobs.get(MORE.name)
        return job is not None and job.state is JobState.PENDING and job.hold is Hold.ADMIN

    def _entitled(self) -> dict[str, int]:
        return {row["account"]: row["entitled"] for row in self._cluster.status()["accounts"]}

    def _fail(self, text: str) -> None:
        self.failures.append(text)
        self._screen.report(f"-> FAILED: {text}")

    # -- results ---------------------------------------------------------------------------
    def _collect_results(self) -> None:
        self.results = {job.name: self._cluster.result(job, job_id) for job_id, job in self.submitted.items()}
        self.preemptions = self._cluster.preemptions()[::-1]
        checks = chain(
            self._check_preemptions("physics", PHYSICS, 2),
            self._check_preemptions("the urgent job", (ALARM,), 1),
            *(self._check_result(job) for job in self.submitted.values()),
        )
        for text in checks:
            self._fail(text)

    def _check_preemptions(self, who: str, preemptors: Sequence[DemoJob], right: int) -> list[str]:
        names = {job.name for job in preemptors}
        victims = [
            self.name_of(victim["job"])
            for preemption in self.preemptions
            for victim in preemption["victims"]
            if self.name_of(preemption["preemptor"]) in names
        ]
        if len(victims) == right and set(victims) <= {job.name for job in BIO}:
            return []
        return [
            f"for {who} {right} of bio's jobs should have been preempted, but it was: {', '.join(victims) or 'none'}"
        ]

    def _check_result(self, job: DemoJob) -> list[str]:
        result, failures = self.results[job.name], []
        if not self._is_complete(job):
            failures.append(f"{job.name} is lost: {result}")
        if result.starts > result.restarts + 1:
            failures.append(
                f"{job.name} started its work {result.starts} times, but Slurm restarted it {result.restarts} times"
            )
        if not result.restarts and result.steps != job.work:
            failures.append(f"{job.name} never restarted, so it should have worked {job.work} s, not {result.steps} s")
        return failures

    def _is_complete(self, job: DemoJob) -> bool:
        result = self.results.get(job.name)
        return result is not None and result.outcome == "COMPLETED" and result.finished and result.steps >= job.work
