"""What is brought about on a private Slurm to record what its commands print, and what is asked of the gateway then.

The same questions are put to the recorded answers (tests/unit/slurm/test_parse_releases.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.comments import HELD, RELEASED

OWNER = "nobody"
SHAPE = Shape(
    gres={"n1": "ve:2", "n2": "ve:2,gpu:a100:2,gpu:v100:1"},
    features={"n1": "fast,ve", "n2": "fast"},
    partitions=(
        "PartitionName=small Nodes=n[3-4] PriorityTier=7",
        "PartitionName=whole Nodes=n[3-4] OverSubscribe=EXCLUSIVE",
    ),
    options={"Licenses": "ve_n1:2,mem_n1:8,fluent:5", "KillWait": "60"},
)
LIMITED = Shape(
    partitions=(
        "PartitionName=small Nodes=n[1-2] MinNodes=1 MaxNodes=2 MaxTime=60 AllowAccounts=bio AllowGroups=root"
        " DenyQos=normal PriorityTier=5 MaxMemPerNode=1000 ExclusiveUser=YES QOS=high State=DRAIN",
        "PartitionName=closed Nodes=n2 DenyAccounts=bio AllowQos=normal MaxMemPerCPU=500 State=INACTIVE",
    ),
    gres={"n1": "gpu:2"},
    options={
        "AccountingStorageEnforce": "limits,qos",
        "AccountingStorageTRES": "gres/gpu,license/fluent",
        "Licenses": "fluent:5",
    },
)
UNKNOWN = 999_999
HOSTILE = (
    "a\n9|9|N/A|RUNNING\nJobId=1 JobName=b UserId=root(0) Requeue=0 Restarts=9 \"q' k\u00e4se \u732b,%A JOB_GRES=(null)"
)
FOUND = ("done", "failed", "cancelled", "uneven", "array", "array 1", "hostile", "held after", "for ever", "unknown")
"""These are also looked at by themselves."""
SLEEP = "sleep 3600"
STUBBORN = "trap '' TERM; while true; do sleep 1; done"

Question = tuple[str, Callable[[Gateway], object]]
"""What is asked, and how."""


class Stage:
    """The cluster and the jobs on it by name."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm = slurm
        self.ids: dict[str, int] = {}
        self._gateway = slurm.gateway()

    def submit(self, name: str, *options: str, script: str = SLEEP) -> int:
        options = (f"--job-name={name}", "--output=/dev/null", *options)  # the last of two names counts
        self.ids[name] = self.slurm.submit(script, *options, uid=OWNER)
        return self.ids[name]

    def running(self, name: str, *options: str, script: str = SLEEP) -> int:
        job_id = self.submit(name, *options, script=script)
        self.until(lambda: self.state(name) is JobState.RUNNING, f"{name} to run")
        return job_id

    def scontrol(self, *words: str) -> None:
        self.slurm.command("scontrol", *words)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.slurm.wait_until(condition, what)

    def job(self, name: str) -> Job | None:
        return self._gateway.find(self.ids[name])

    def state(self, name: str) -> JobState | None:
        job = self.job(name)
        return job.state if job else None

    def tasks(self, array: str) -> dict[int, Job]:
        listed = (job for job in self._gateway.jobs() if job.array_id == self.ids[array])
        return {task: job for job in listed for task in job.task_ids}

    def waits_again(self, name: str) -> bool:
        job = self.job(name)
        return job is not None and job.state is JobState.PENDING and job.restarts == 1

    def settled(self) -> None:
        """Wait until Slurm has looked at every waiting job: until then it says no reason, or that of its first look."""

        def all_seen() -> bool:
            return all(job.reason for job in self._gateway.jobs() if job.state is JobState.PENDING)

        self.until(all_seen, "a reason of every waiting job")


def waiting(stage: Stage) -> None:
    """Every kind of job that waits, on a full cluster."""
    stage.running("blocker", "--ntasks=16", "--nodes=4", "--time=1-02:03:00", "--account=physics")
    stage.submit("plain")
    stage.submit("held", "--hold")
    stage.submit("held by us", "--hold")
    stage.scontrol("hold", str(stage.ids["held by us"]))
    stage.submit("priced", "--licenses=ve_n1:2,mem_n1:3,fluent", "--nice=7", "--time=90")
    stage.submit("wide", "--ntasks=6", "--nodes=2-3", "--mem-per-cpu=200M")
    stage.submit("heavy", "--nodes=2", "--mem=1000M", "--exclude=n[3-4]", "--mincpus=2")
    stage.submit("choosy", "--constraint=fast&ve", "--gres=ve:1", "--nodelist=n1")
    stage.submit("typed", "--gres=gpu:a100:2,ve:1", "--partition=main,urgent")
    stage.submit("gpus", "--gpus=2", "--ntasks=2")
    stage.submit("gpus of tasks", "--gpus-per-task=1", "--ntasks=2")
    stage.submit("gpus with CPUs", "--gpus=2", "--cpus-per-gpu=2", "--hold")
    stage.submit("open", "--nodes=2-4", "--hold")
    stage.submit("threads", "--cpus-per-task=2", "--ntasks=4", "--hold")
    stage.submit("tasks by node", "--ntasks-per-node=2", "--ntasks=4", "--hold")
    stage.submit("due", "--time=5", "--deadline=now+1hour", "--hold")
    stage.submit("alone", "--exclusive")
    stage.submit("alone with his own", "--exclusive=user")
    stage.submit("crowd", "--oversubscribe")
    stage.submit("whole", "--partition=whole")
    stage.submit("later", "--begin=now+1hour")
    stage.submit("for ever", "--no-requeue", "--time=UNLIMITED", "--comment=omfs:method=suspend")
    stage.submit(
        "hostile", f"--job-name={HOSTILE}", f"--comment={HOSTILE}", f"--account={HOSTILE}", "--hold", "--ntasks=2"
    )
    blocker = stage.ids["blocker"]
    for kind in ("after", "afterany", "afterok", "afternotok"):
        stage.submit(kind, f"--dependency={kind}:{blocker if kind != 'after' else stage.ids['plain']}")
    stage.submit("one of two", f"--dependency=afterok:{blocker}?afterany:{stage.ids['plain']}")
    stage.submit("both", f"--dependency=afterok:{blocker},after:{stage.ids['plain']}+5")
    stage.submit("single", "--dependency=singleton", "--job-name=plain")
    stage.submit("held after", f"--dependency=afterany:{blocker}", "--hold")
    stage.submit("array", "--array=1-6%2", "--ntasks=2")
    stage.submit("after array", f"--dependency=afterok:{stage.ids['array']}", "--hold")
    stage.submit("aftercorr", f"--dependency=aftercorr:{stage.ids['array']}", "--array=1-2")
    stage.scontrol("hold", f"{stage.ids['array']}_4")
    stage.ids["array 4"] = stage.tasks("array")[4].id
    stage.settled()


def started(stage: Stage) -> None:
    """Every kind of job that has started, is on its way out or back, or has ended."""
    stage.submit("done", script="true")
    stage.submit("failed", script="exit 3")
    stage.running("cancelled")
    stage.slurm.command("scancel", str(stage.ids["cancelled"]))
    stage.submit("special exit", script="exit 101")
    stage.running("requeued", "--ntasks=2")
    stage.scontrol("requeuehold", "Incomplete", str(stage.ids["requeued"]))
    for name in ("done", "failed", "cancelled"):
        stage.until(lambda name=name: stage.state(name) is JobState.ENDED, f"the end of {name}")  # type: ignore[misc]
    for name in ("special exit", "requeued"):
        stage.until(lambda name=name: stage.waits_again(name), f"{name} to be back")  # type: ignore[misc]
    stage.submit("array", "--nodelist=n4", "--array=1-5%2")
    stage.until(lambda: stage.tasks("array")[1].runs, "a task to run")
    stage.scontrol("requeuehold", "Incomplete", f"{stage.ids['array']}_1")
    stage.until(lambda: stage.tasks("array")[1].restarts == 1, "a task to be back")
    stage.until(lambda: stage.tasks("array")[2].runs and stage.tasks("array")[3].runs, "two tasks to run")
    for task in (1, 2, 3, 4):
        stage.ids[f"array {task}"] = stage.tasks("array")[task].id
    stage.running("first", "--nodelist=n1", "--ntasks=3", "--licenses=ve_n1:1,mem_n1:3", "--gres=ve:1")
    stage.running("gpu", "--nodelist=n2", "--gres=gpu:a100:1,ve:1", "--time=90")
    stage.running(
        "uneven", "--nodelist=n[1-2]", "--nodes=2", "--ntasks=4", f"--job-name={HOSTILE}", "--account=physics"
    )
    stage.running("suspended", "--nodelist=n3", "--ntasks=4")
    stage.scontrol("suspend", str(stage.ids["suspended"]))
    stage.running("guest", "--nodelist=n3", "--ntasks=4", "--mem-per-cpu=50M")
    stage.running("leaving", "--nodelist=n4", script=STUBBORN)
    stage.slurm.command("scancel", str(stage.ids["leaving"]))
    stage.until(lambda: stage.state("leaving") is JobState.COMPLETING, "a job that is completing")
    stage.settled()


def nodes(stage: Stage) -> None:
    """Nodes in their states."""
    stage.running("busy", "--nodelist=n1", "--ntasks=3", "--mem=900M")
    stage.running("drained", "--nodelist=n2")
    stage.scontrol("update", "nodename=n2", "state=drain", "reason=x State=IDLE CPUTot=900 Nodes=n[1-9]")
    stage.scontrol("update", "nodename=n3", "state=down", "reason=x")
    stage.scontrol(
        "create", "reservation", "reservationname=r", "starttime=now", "duration=60", "users=root", "nodes=n4"
    )
    stage.submit("reserved", "--nodelist=n4")
    stage.until(lambda: [node.up for node in stage.slurm.gateway().nodes()] == [True, False, False, False], "n1 alone")
    stage.settled()


def orders(stage: Stage) -> None:
    """Jobs to give orders to."""
    stage.submit("ended", script="true")
    stage.until(lambda: stage.state("ended") is JobState.ENDED, "an end")
    stage.running("blocker", "--nodelist=n[1-2]", "--ntasks=8", "--nodes=2", "--no-requeue")
    for name in ("one", "two", "three"):
        stage.running(name, "--nodelist=n3", "--licenses=fluent")
    stage.running("suspended", "--nodelist=n4", "--licenses=fluent")
    stage.scontrol("suspend", str(stage.ids["suspended"]))
    stage.submit("waits", "--nodelist=n1")
    stage.submit("held", "--hold")
    stage.submit("array", "--nodelist=n1", "--array=1-3")
    stage.running("leaving", "--nodelist=n4", "--licenses=fluent", script=STUBBORN)
    stage.slurm.command("scancel", str(stage.ids["leaving"]))
    stage.until(lambda: stage.state("leaving") is JobState.COMPLETING, "a job that is completing")


def denied(stage: Stage) -> None:
    """Jobs of another user, who is none of ours."""
    stage.ids["running"] = stage.slurm.submit(SLEEP, "--output=/dev/null")
    stage.ids["held"] = stage.slurm.submit(SLEEP, "--output=/dev/null", "--hold")
    stage.until(lambda: stage.state("running") is JobState.RUNNING, "a job to run")


def limits(stage: Stage) -> None:
    """Every kind of limit."""
    modify = ("sacctmgr", "--immediate", "modify")
    group = ("GrpTRES=cpu=8,mem=4000,gres/gpu=2", "GrpTRESMins=cpu=1000", "GrpTRESRunMins=cpu=9000", "GrpWall=500")
    own = ("MaxTRES=cpu=4", "MaxTRESPerNode=cpu=3", "MaxTRESMins=cpu=700", "MaxWall=100", "MaxJobs=5")
    each = ("MaxTRESPerUser=cpu=6", "MaxJobsPerUser=3", "MaxTRESPA=cpu=5", "MaxJobsPA=4", "MaxTRES=cpu=7")
    rest = ("MinTRESPerJob=cpu=1", "UsageThreshold=0.01", "Flags=PartitionTimeLimit,OverPartQOS", "MaxWall=2:00:00")
    for words in (
        ("qos", "high", "set", *group, "GrpJobs=7", *each, *rest),
        ("account", "bio", "set", *group, "GrpJobs=6", "GrpSubmitJobs=70", "qos=normal,high"),
        ("user", OWNER, "where", "account=bio", "set", *own, "qos=normal,high"),
    ):
        stage.slurm.command(*modify, *words)
    create = ("create", "reservation")
    where = ("starttime=now+3600", "duration=60", "nodes=n4", "flags=maint")
    stage.scontrol(*create, "reservationname=maintenance", *where, "users=root")
    where = ("starttime=now+7200", "duration=60", "nodes=n1,n3", "flags=ignore_jobs")
    stage.scontrol(*create, "reservationname=bio", *where, "accounts=bio")
    stage.running("runs", "--account=bio", "--qos=high", "--ntasks=2", "--time=30", "--licenses=fluent:2")
    stage.submit("throttled", "--account=bio", "--begin=now+1hour", "--array=1-6%2", "--time=30", "--exclusive=user")
    stage.submit("reserved", "--account=bio", "--reservation=bio", "--time=30")
    stage.submit("single", "--account=bio", "--hold", "--dependency=singleton", "--time=30", "--job-name=runs")
    stage.settled()


def away(stage: Stage) -> None:
    """No slurmctld."""
    stage.ids["running"] = 1
    stage.slurm.kill_controller()


def ask_for_nodes(ids: Mapping[str, int]) -> list[Question]:
    return [("nodes", lambda gateway: gateway.nodes())]


def ask_for_all(ids: Mapping[str, int]) -> list[Question]:
    """Everything that a gateway shows."""
    return [
        ("settings", lambda gateway: gateway.settings()),
        ("accounts", lambda gateway: gateway.accounts()),
        ("partitions", lambda gateway: gateway.partitions()),
        ("licenses", lambda gateway: gateway.licenses()),
        *ask_for_jobs(ids),
    ]


def ask_for_jobs(ids: Mapping[str, int]) -> list[Question]:
    """All jobs, and some of them by themselves."""
    singly: list[Question] = [
        (name, lambda gateway, job_id=job_id: gateway.find(job_id))  # type: ignore[misc]
        for name, job_id in {**ids, "unknown": UNKNOWN}.items()
        if name in FOUND
    ]
    return [("jobs", lambda gateway: gateway.jobs()), *singly]


def give(ids: Mapping[str, int]) -> list[Question]:
    """Every order to every kind of job that takes it or refuses it."""
    ref = {name: str(job_id) for name, job_id in ids.items()} | {"unknown": str(UNKNOWN)}
    array = ref["array"]
    several = [ref["unknown"], ref["waits"], ref["ended"]]
    return [
        ("hold", lambda gateway: gateway.hold([*several, ref["one"], f"{array}_2", f"{array}_77"], HELD)),
        ("hold an array", lambda gateway: gateway.hold([f"{array}_[1,3]"], HELD)),
        ("release", lambda gateway: gateway.release([*several, ref["one"], f"{array}_2", f"{array}_77"], RELEASED)),
        ("rank", lambda gateway: gateway.set_nice([*several, ref["held"], f"{array}_2"], -500_000)),
        ("pin", lambda gateway: gateway.pin(ref["held"], ["n1", "n3"])),
        ("unpin", lambda gateway: gateway.pin(ref["held"], [])),
        ("pin with licenses", lambda gateway: gateway.pin(ref["held"], ["n1"], [("fluent", 2)])),
        ("pin an unknown job", lambda gateway: gateway.pin(ref["unknown"], ["n1"])),
        ("pin to an unknown node", lambda gateway: gateway.pin(ref["held"], ["n1", "nowhere"])),
        ("pin a running job", lambda gateway: gateway.pin(ref["one"], ["n4"])),
        ("pin with unknown licenses", lambda gateway: gateway.pin(ref["held"], ["n2"], [("nope", 1)])),
        ("pin with too many licenses", lambda gateway: gateway.pin(ref["held"], ["n2"], [("fluent", 6)])),
        ("licenses", lambda gateway: gateway.set_licenses([ref["held"], ref["one"]], [("ve_n1", 1), ("fluent", 2)])),
        ("no licenses", lambda gateway: gateway.set_licenses([ref["held"], ref["two"], ref["unknown"]], [])),
        ("licenses of a suspended job", lambda gateway: gateway.set_licenses([ref["suspended"]], [])),
        ("licenses of a leaving job", lambda gateway: gateway.set_licenses([ref["leaving"]], [])),
        ("unknown licenses", lambda gateway: gateway.set_licenses([ref["held"], ref["one"]], [("nope", 1)])),
        ("too many licenses", lambda gateway: gateway.set_licenses([ref["held"], ref["one"]], [("fluent", 6)])),
        ("comment", lambda gateway: gateway.set_admin_comment([ref["one"], ref["unknown"]], "omfs: it's =\n why")),
        ("not to be requeued", lambda gateway: gateway.requeue([ref["blocker"]])),
        ("allow requeue", lambda gateway: gateway.allow_requeue([ref["one"], ref["unknown"]])),
        ("requeue", lambda gateway: gateway.requeue([ref["unknown"], ref["three"], ref["held"], ref["ended"]])),
        ("suspend", lambda gateway: gateway.suspend([*several, ref["two"], f"{array}_77"])),
        ("suspend again", lambda gateway: gateway.suspend([ref["suspended"]])),
        ("resume", lambda gateway: gateway.resume([*several, ref["one"], ref["two"], ref["suspended"]])),
        ("signal", lambda gateway: gateway.signal(ref["one"], "CONT", batch_only=True)),
        ("unknown signal", lambda gateway: gateway.signal(ref["one"], "NOPE")),
        ("signal to a waiting job", lambda gateway: gateway.signal(ref["held"], "USR1")),
        ("signal to an ended job", lambda gateway: gateway.signal(ref["ended"], "USR1")),
        ("signal to an unknown job", lambda gateway: gateway.signal(ref["unknown"], "USR1")),
    ]


def ask_for_limits(ids: Mapping[str, int]) -> list[Question]:
    return [
        ("settings", lambda gateway: gateway.settings()),
        ("limits", lambda gateway: gateway.limits()),
        ("partitions", lambda gateway: gateway.partitions()),
        ("jobs", lambda gateway: gateway.jobs()),
    ]


def give_without_right(ids: Mapping[str, int]) -> list[Question]:
    running, held = str(ids["running"]), str(ids["held"])
    return [
        ("hold", lambda gateway: gateway.hold([running, held], HELD)),
        ("release", lambda gateway: gateway.release([held], RELEASED)),
        ("rank", lambda gateway: gateway.set_nice([held], -5)),
        ("pin", lambda gateway: gateway.pin(held, ["n1"])),
        ("licenses", lambda gateway: gateway.set_licenses([held], [("fluent", 1)])),
        ("requeue", lambda gateway: gateway.requeue([running])),
        ("allow requeue", lambda gateway: gateway.allow_requeue([running])),
        ("suspend", lambda gateway: gateway.suspend([running])),
        ("resume", lambda gateway: gateway.resume([running])),
        ("comment", lambda gateway: gateway.set_admin_comment([running], "x")),
        ("signal", lambda gateway: gateway.signal(running, "USR1")),
    ]


def ask_nobody(ids: Mapping[str, int]) -> list[Question]:
    ref = str(ids["running"])
    return [
        ("jobs", lambda gateway: gateway.jobs()),
        ("settings", lambda gateway: gateway.settings()),
        ("hold", lambda gateway: gateway.hold([ref], HELD)),
        ("suspend", lambda gateway: gateway.suspend([ref])),
        ("requeue", lambda gateway: gateway.requeue([ref])),
        ("rank", lambda gateway: gateway.set_nice([ref], 1)),
    ]


class RecordingScenario(NamedTuple):
    """What is brought about, what is asked then, and as whom (None: root)."""

    prepare: Callable[[Stage], None]
    questions: Callable[[Mapping[str, int]], list[Question]]
    user: str | None = None
    shape: Shape = SHAPE
    accounting: Accounting | None = None


RECORDINGS = {
    "waiting": RecordingScenario(waiting, ask_for_jobs),
    "started": RecordingScenario(started, ask_for_all),
    "nodes": RecordingScenario(nodes, ask_for_nodes),
    "orders": RecordingScenario(orders, give),
    "denied": RecordingScenario(denied, give_without_right, OWNER),
    "away": RecordingScenario(away, ask_nobody),
    "limits": RecordingScenario(
        limits, ask_for_limits, shape=LIMITED, accounting=Accounting(["bio"], [OWNER], qos=["high"])
    ),
}
