"""The gate inside slurmctld, on a real Slurm: what it holds, and that owners do not get past it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from omfs_daemon.cluster.clients import CLIENTS
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.config.build import rules
from omfs_daemon.config.job_submit_conf import as_text, plugin_settings
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.wakeup import Wakeup
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.conftest import clear
from tests.support.marked_jobs import GONE, MAX_AGE
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

PLUGIN = Path(__file__).parents[2] / "plugins" / "job_submit.lua"
OWNER = "nobody"
GATE = "omfs:held:0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-gate-"))
    settings = {
        "heartbeat": str(directory / "heartbeat"),
        "wake": str(directory / "wake"),
        "max_age": MAX_AGE,
        "let_in_partitions": "urgent",
        "let_in_accounts": "free",
        "node_licenses": "ve_{node}",
        "any_licenses": "ve",
    }
    features = dict.fromkeys(("n1", "n2"), "fast")
    shape = Shape(nodes=2, features=features, options={"Licenses": "ve_n1:2,ve_n2:2,ve:9999,fluent:5"})
    try:
        with LocalSlurm(directory, shape, gate=SubmitGate(PLUGIN, settings), limit=LIMIT) as slurm:
            for name in ("wake", "wake_later"):
                (directory / name).touch()
                shutil.chown(directory / name, shape.slurm_user)
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def gate(cluster: LocalSlurm) -> Iterator[LocalSlurm]:
    """The cluster, while the daemon seems to live."""
    beat(cluster)
    yield cluster
    clear(cluster)


def beat(cluster: LocalSlurm, age: float = 0) -> None:
    (cluster.directory / "heartbeat").write_text(f"{int(time.time() - age)}\n")


def submit(cluster: LocalSlurm, *arguments: str) -> Job:
    """A job of the owner's, as Slurm shows it right after."""
    return look(cluster, cluster.submit("sleep 3600", *arguments, uid=OWNER))


def look(cluster: LocalSlurm, job_id: int) -> Job:
    job = cluster.gateway().find(job_id)
    assert job is not None
    return job


def as_owner(cluster: LocalSlurm, *arguments: str) -> str:
    """What Slurm says to the owner's command; "" if it took it."""
    output = cluster.command("scontrol", *arguments, check=False, uid=OWNER)
    return output.stderr if output.code else ""


def let_go(cluster: LocalSlurm, job: Job) -> None:
    """Release a job from the gate as the daemon does."""
    cluster.command("scontrol", "update", f"jobid={job.id}", f"AdminComment=omfs:rel:1?{GATE}")
    cluster.command("scontrol", "release", job.ref)


def waits_at_gate(job: Job) -> bool:
    """Held when its owner released or changed it, which can be marked only in its comment."""
    return job.hold is Hold.USER and "omfs:wait" in job.comment.split()


class Woken:
    """``urgent``, ``later``: whether the daemon would have been woken, at once or later."""

    def __init__(self) -> None:
        self.urgent, self.later = Event(), Event()

    def is_later(self) -> bool:
        """Wait until it is, and not at once; from then on it rests again."""
        if not self.later.wait(LIMIT) or self.urgent.is_set():
            return False
        self.later.clear()
        return True

    def is_at_once(self) -> bool:
        """Likewise."""
        if not self.urgent.wait(LIMIT) or self.later.is_set():
            return False
        self.urgent.clear()
        return True


@pytest.fixture
def woken(gate: LocalSlurm) -> Iterator[Woken]:
    seen = Woken()
    wakeup = Wakeup(gate.directory, seen.urgent.set, seen.later.set)
    try:
        yield seen
    finally:
        wakeup.close()


def runs(cluster: LocalSlurm, job: Job) -> Callable[[], bool]:
    return lambda: look(cluster, job.id).state is JobState.RUNNING


def test_holds_while_the_daemon_lives(gate: LocalSlurm) -> None:
    job = submit(gate, "--comment=see omfs.method=requeue")
    assert (job.hold, job.priority, job.admin_comment) == (Hold.USER, 0, GATE)
    let_go(gate, job)
    wait_until(runs(gate, job), "the job to run after the daemon's release")


@pytest.mark.parametrize("age", [GONE, 1e9])
def test_holds_nothing_when_the_daemon_is_gone(gate: LocalSlurm, age: float) -> None:
    beat(gate, age)
    job = submit(gate)
    assert job.hold is Hold.NONE
    wait_until(runs(gate, job), "the job to run")


@pytest.mark.parametrize("content", [None, "", "not a number"])
def test_holds_nothing_without_a_readable_heartbeat(gate: LocalSlurm, content: str | None) -> None:
    heartbeat = gate.directory / "heartbeat"
    heartbeat.unlink()
    if content is not None:
        heartbeat.write_text(content)
    assert submit(gate).hold is Hold.NONE


@pytest.mark.parametrize(
    "arguments",
    [
        ("--comment=omfs:method=requeue",),
        ("--comment=my text omfs:method=nonsense,suspend more",),
        ("--partition=urgent",),
        ("--account=free",),
        ("--no-requeue", "--comment=omfs:method=requeue,suspend"),
    ],
)
def test_lets_in_what_is_preemptible(gate: LocalSlurm, arguments: tuple[str, ...]) -> None:
    job = submit(gate, *arguments)
    assert (job.hold, job.admin_comment) == (Hold.NONE, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--comment=my own words",),
        ("--no-requeue", "--account=free"),
        ("--partition=main,urgent",),
        ("--account=freedom",),
        ("--array=1-3",),
    ],
)
def test_holds_all_else(gate: LocalSlurm, arguments: tuple[str, ...]) -> None:
    assert submit(gate, *arguments).admin_comment == GATE


@pytest.mark.parametrize(
    "change",
    [
        ("release", "{job}"),
        ("hold", "{job}"),
        ("update", "jobid={job}", "nice=-5"),
        ("update", "jobid={job}", "nice=5"),
        ("update", "jobid={job}", "priority=100000"),
        ("update", "jobid={job}", "partition=urgent"),
        ("update", "jobid={job}", "account=free"),
        ("update", "jobid={job}", "nodelist=n2"),
        ("update", "jobid={job}", "excnodelist=n2"),
        ("update", "jobid={job}", "licenses="),
        ("update", "jobid={job}", "comment=omfs:method=requeue"),
        ("update", "jobid={job}", "admincomment="),
        ("top", "{job}"),
    ],
    ids=lambda change: "-".join(change),
)
def test_the_owner_does_not_get_past_it(gate: LocalSlurm, change: tuple[str, ...]) -> None:
    job = submit(gate)
    words = [word.format(job=job.id) for word in change]
    said = as_owner(gate, *words)
    now = look(gate, job.id)
    assert now == job
    assert said or change[0] == "update", "refused without a word"


def test_the_owner_may_change_the_rest(gate: LocalSlurm) -> None:
    job = submit(gate)
    assert as_owner(gate, "update", f"jobid={job.id}", "comment=my own words", "timelimit=5") == ""
    assert look(gate, job.id).comment == "my own words"


def test_the_owner_may_release_once_the_daemon_is_gone(gate: LocalSlurm) -> None:
    job = submit(gate)
    beat(gate, GONE)
    assert as_owner(gate, "release", job.ref) == ""
    assert look(gate, job.id).hold is Hold.NONE


def test_an_owners_own_hold_is_respected(gate: LocalSlurm) -> None:
    job = submit(gate, "--hold")
    assert (job.hold, job.admin_comment) == (Hold.USER, "")


def test_an_owners_release_leads_to_the_gate(gate: LocalSlurm) -> None:
    job = submit(gate, "--hold", "--comment=words")
    assert as_owner(gate, "release", job.ref) == ""
    released = look(gate, job.id)
    assert (released.hold, released.comment) == (Hold.USER, "words omfs:wait")
    assert as_owner(gate, "release", job.ref) == ""
    assert look(gate, job.id) == released

    let_go(gate, job)
    wait_until(runs(gate, job), "the job to run after the daemon's release")


def test_owners_may_hold_again_after_their_release(gate: LocalSlurm) -> None:
    job = submit(gate, "--hold")
    as_owner(gate, "release", job.ref)
    as_owner(gate, "update", f"jobid={job.id}", "comment=other words")
    assert look(gate, job.id).comment == "other words omfs:wait"
    assert as_owner(gate, "hold", job.ref) == ""
    held = look(gate, job.id)
    assert (held.hold, held.admin_comment, held.comment) == (Hold.USER, "", "other words")


def test_nobody_submits_our_marks(gate: LocalSlurm) -> None:
    assert submit(gate, "--hold", "--comment=a omfs:wait omfs:wait b").comment == "a b"
    job = submit(gate, "--hold")
    as_owner(gate, "update", f"jobid={job.id}", "comment=omfs:wait")
    assert look(gate, job.id).comment == ""


def test_a_release_of_a_preemptible_job_just_releases(gate: LocalSlurm) -> None:
    job = submit(gate, "--hold", "--comment=omfs:method=suspend")
    assert as_owner(gate, "release", job.ref) == ""
    assert look(gate, job.id).hold is Hold.NONE


@pytest.mark.parametrize("option", ["--requeue", "--no-requeue"])
def test_a_release_of_what_slurm_may_not_requeue_leads_to_the_gate(gate: LocalSlurm, option: str) -> None:
    """Slurm does not show the plug-in which of the two it is."""
    beat(gate, GONE)  # else the second one would be refused
    job = submit(gate, "--hold", "--comment=omfs:method=requeue", option)
    beat(gate)
    assert as_owner(gate, "release", job.ref) == ""
    assert waits_at_gate(look(gate, job.id))


@pytest.mark.parametrize("beats", [True, False], ids=["daemon lives", "daemon gone"])
@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        (("--comment=omfs:method=requeue",), "requeue=0"),
        (("--account=free",), "requeue=0"),
        (("--account=free",), "comment=omfs:method=none"),
        (("--account=free",), "comment=omfs:method=none\u00a0"),
        (("--comment=omfs:method=suspend",), "comment=omfs:method=requeue"),
        (("--no-requeue", "--comment=omfs:method=suspend"), "comment=omfs:method=requeue"),
    ],
)
def test_no_change_makes_a_running_job_non_preemptible(
    gate: LocalSlurm, arguments: tuple[str, ...], change: str, beats: bool
) -> None:
    job = submit(gate, *arguments)
    wait_until(runs(gate, job), "the job to run")
    if not beats:
        beat(gate, GONE)
    before = gate.command("scontrol", "show", "job", job.ref).stdout
    assert "denied" in as_owner(gate, "update", f"jobid={job.id}", change)
    after = gate.command("scontrol", "show", "job", job.ref).stdout
    for word in ("Requeue=", "Comment="):
        assert [line for line in after.splitlines() if word in line] == [
            line for line in before.splitlines() if word in line
        ]


def test_requeue_may_be_forgone_where_another_method_is_named(gate: LocalSlurm) -> None:
    job = submit(gate, "--comment=omfs:method=requeue,suspend")
    assert as_owner(gate, "update", f"jobid={job.id}", "requeue=0") == ""


def released(cluster: LocalSlurm, *arguments: str) -> Job:
    """A job that may never be stopped, let go by the daemon; its begin time keeps it waiting."""
    job = submit(cluster, "--begin=now+1hour", "--comment=words", *arguments)
    let_go(cluster, job)
    assert look(cluster, job.id).hold is Hold.NONE
    return job


CHANGES_OF_WHAT_WAS_LET_GO = [
    "numcpus=3",
    "numcpus=1-3",
    "numnodes=2",
    "numtasks=3",
    "cpuspertask=3",
    "nodelist=n1,n2",
    "features=fast*2",
    "minmemorynode=50",
    "minmemorycpu=50",
    "account=other",
    "qos=other",
    "partition=urgent",
    "starttime=now",
]


@pytest.mark.parametrize("change", CHANGES_OF_WHAT_WAS_LET_GO)
def test_what_becomes_another_job_waits_at_the_gate_again(gate: LocalSlurm, change: str) -> None:
    job = released(gate)
    assert as_owner(gate, "update", f"jobid={job.id}", change) == ""
    changed = look(gate, job.id)
    assert (changed.hold, changed.comment) == (Hold.USER, "words omfs:wait")
    assert as_owner(gate, "release", job.ref) == ""
    assert look(gate, job.id).hold is Hold.USER

    let_go(gate, job)
    assert look(gate, job.id).hold is Hold.NONE
    assert look(gate, job.id).comment == "words"


def test_what_becomes_another_job_in_the_moment_of_its_release_waits_again(gate: LocalSlurm) -> None:
    job = released(gate)
    assert as_owner(gate, "update", f"jobid={job.id}", "numcpus=3", "numnodes=2") == ""
    changed = look(gate, job.id)
    assert (waits_at_gate(changed), changed.request.nodes) == (True, 2)


def test_what_becomes_another_job_does_not_wait_without_a_daemon(gate: LocalSlurm) -> None:
    job = released(gate)
    beat(gate, GONE)
    assert as_owner(gate, "update", f"jobid={job.id}", "numcpus=3") == ""
    assert look(gate, job.id).hold is Hold.NONE


def test_other_changes_do_not_lead_back_to_the_gate(gate: LocalSlurm) -> None:
    job = released(gate)
    changes = ("timelimit=5", "comment=new", "nice=3", "jobname=other", "features=fast", "excnodelist=n1")
    for change in changes:
        assert as_owner(gate, "update", f"jobid={job.id}", change) == "", change
    assert look(gate, job.id).hold is Hold.NONE
    preemptible = submit(gate, "--begin=now+1hour", "--comment=omfs:method=suspend")
    assert as_owner(gate, "update", f"jobid={preemptible.id}", "numcpus=3") == ""
    assert look(gate, preemptible.id).hold is Hold.NONE
    held = submit(gate, "--hold")
    assert as_owner(gate, "update", f"jobid={held.id}", "numcpus=3") == ""
    assert look(gate, held.id).admin_comment == ""


@pytest.mark.parametrize("beats", [True, False], ids=["daemon lives", "daemon gone"])
def test_roots_hold_of_a_job_at_the_gate_is_not_the_gates(gate: LocalSlurm, beats: bool) -> None:
    job = submit(gate, "--hold", "--begin=now+1hour", "--comment=words")
    as_owner(gate, "release", job.ref)
    assert waits_at_gate(look(gate, job.id))
    if not beats:
        beat(gate, GONE)
    gate.command("scontrol", "uhold", job.ref)
    held = look(gate, job.id)
    assert (held.hold, held.admin_comment, held.comment) == (Hold.USER, "adm:held", "words")
    gate.command("scontrol", "release", job.ref)
    assert (look(gate, job.id).hold, look(gate, job.id).admin_comment) == (Hold.NONE, "adm:rel")


def test_the_daemons_hold_in_the_gates_place_stays_its_own(gate: LocalSlurm) -> None:
    job = submit(gate, "--hold", "--comment=words")
    as_owner(gate, "release", job.ref)
    gate.command("scontrol", "update", f"jobid={job.id}", "Priority=0", f"AdminComment=omfs:held:1?{GATE} why")
    held = look(gate, job.id)
    assert (held.hold, held.admin_comment, held.comment) == (Hold.ADMIN, "omfs:held:1 why", "words")


def test_a_job_let_in_stays_preemptible(gate: LocalSlurm) -> None:
    job = submit(gate, "--comment=omfs:method=requeue")
    wait_until(runs(gate, job), "the job to run")
    assert "denied" in as_owner(gate, "update", f"jobid={job.id}", "comment=never stop me")
    assert as_owner(gate, "update", f"jobid={job.id}", "comment=better omfs:method=suspend") == ""


def test_owners_may_lower_their_rank_but_not_raise_it_again(gate: LocalSlurm) -> None:
    job = submit(gate, "--comment=omfs:method=requeue", "--begin=now+1hour")
    assert as_owner(gate, "update", f"jobid={job.id}", "nice=7") == ""
    assert "denied" in as_owner(gate, "update", f"jobid={job.id}", "nice=6")
    assert look(gate, job.id).nice == 7


def test_root_may_do_all(gate: LocalSlurm) -> None:
    job = submit(gate)
    gateway = gate.gateway()
    assert gateway.set_nice([job.ref], -400) == []
    assert gateway.pin(job.ref, ["n2"]) == []
    gate.command("scontrol", "hold", job.ref)
    now = look(gate, job.id)
    assert (now.nice, now.request.required_nodes, now.hold) == (-400, {"n2"}, Hold.ADMIN)


@pytest.mark.parametrize("method", ["omfs:method=suspend", ""])
@pytest.mark.parametrize("licenses", ["", "ve_n1:1", "ve_n1:2,ve_n2:1", "fluent:1"])
def test_owners_cannot_change_the_node_licenses_of_their_jobs(gate: LocalSlurm, method: str, licenses: str) -> None:
    job = submit(gate, "--licenses=ve_n1:2", f"--comment={method}")
    let_go(gate, job)
    wait_until(runs(gate, job), "the job to run")
    assert "denied" in as_owner(gate, "update", f"jobid={job.id}", f"licenses={licenses}")
    assert look(gate, job.id).licenses == (("ve_n1", 2),)
    assert gate.gateway().set_licenses([job.ref], ()) == []


def test_nor_while_it_waits(gate: LocalSlurm) -> None:
    job = submit(gate, "--licenses=ve_n1:2", "--comment=omfs:method=suspend", "--begin=now+1hour")
    assert "denied" in as_owner(gate, "update", f"jobid={job.id}", "licenses=")
    assert look(gate, job.id).licenses == (("ve_n1", 2),)


def test_other_licenses_are_the_owners(gate: LocalSlurm) -> None:
    job = submit(gate, "--licenses=fluent:1", "--comment=omfs:method=suspend")
    wait_until(runs(gate, job), "the job to run")
    assert as_owner(gate, "update", f"jobid={job.id}", "licenses=") == ""


def test_a_job_that_takes_any_device_waits_until_it_is_placed(gate: LocalSlurm) -> None:
    job = submit(gate, "--licenses=fluent,ve:1", "--comment=omfs:method=suspend")
    assert (job.hold, job.admin_comment) == (Hold.USER, GATE)
    assert "denied" in as_owner(gate, "update", f"jobid={job.id}", "licenses=ve_n1:1")
    assert "denied" in as_owner(gate, "release", job.ref)
    assert gate.gateway().pin(job.ref, ["n2"], (("fluent", 1), ("ve_n2", 1))) == []
    let_go(gate, job)
    wait_until(runs(gate, job), "the job to run where it was placed")
    assert (look(gate, job.id).on_nodes, look(gate, job.id).licenses) == (("n2",), (("fluent", 1), ("ve_n2", 1)))


def test_nor_can_its_owner_ask_for_any_device_later(gate: LocalSlurm) -> None:
    job = submit(gate, "--hold", "--comment=omfs:method=suspend")
    assert as_owner(gate, "update", f"jobid={job.id}", "licenses=ve:1") == ""
    assert as_owner(gate, "release", job.ref) == ""
    assert waits_at_gate(look(gate, job.id))
    waiting = submit(gate, "--begin=now+1hour", "--comment=omfs:method=suspend")
    assert as_owner(gate, "update", f"jobid={waiting.id}", "licenses=ve:1") == ""
    assert waits_at_gate(look(gate, waiting.id))


@pytest.mark.parametrize("words", ["mine omfs:method=dmtcp,suspend", "omfs:method=suspend"])
def test_omfs_run_may_write_its_report_into_the_comment(gate: LocalSlurm, words: str) -> None:
    """As the owner, while the job runs, marked by us or not; what may stop the job stays as it is."""
    job = submit(gate, f"--comment={words}")
    wait_until(runs(gate, job), "the job to run")
    word = "omfs:run=0:ready:method=dmtcp"
    for mark in ("", "omfs:stopping:1?"):
        gate.command("scontrol", "update", f"jobid={job.id}", f"AdminComment={mark}")
        for comment in (f"{words} {word}", f"{words} omfs:run=0:stopped:method=dmtcp:bytes=1:seconds=0.5"):
            assert as_owner(gate, "update", f"jobid={job.id}", f"comment={comment}") == ""
            assert look(gate, job.id).comment == comment
        assert "denied" in as_owner(gate, "update", f"jobid={job.id}", f"comment={word}")


def test_a_broken_setting_lets_jobs_in(gate: LocalSlurm) -> None:
    conf = gate.directory / "omfs_job_submit.conf"
    kept = conf.read_text()
    try:
        conf.write_text("heartbeat = /\nmax_age = soon\nnonsense\n")
        assert submit(gate).hold is Hold.NONE
    finally:
        conf.write_text(kept)


SITES_OWN = """
dofile("{ours}")
local submit, modify = slurm_job_submit, slurm_job_modify
function slurm_job_submit(job, partitions, uid)
  slurm.log_user("%s", "the site's own")
  return submit(job, partitions, uid)
end
function slurm_job_modify(change, job, partitions, uid)
  return modify(change, job, partitions, uid)
end
return slurm.SUCCESS
"""


def test_a_script_of_the_sites_own_may_call_it(gate: LocalSlurm) -> None:
    script, ours = gate.directory / "job_submit.lua", gate.directory / "omfs_job_submit.lua"
    soon = time.time() + LIMIT  # slurmctld reads a script anew whose time is later than when it was read
    kept = script.read_text()
    ours.write_text(kept)
    script.write_text(SITES_OWN.format(ours=ours))
    os.utime(script, (soon, soon))
    try:
        output = gate.command("sbatch", "--parsable", "--wrap=true", uid=OWNER)
        assert "the site's own" in output.stderr
        assert look(gate, int(output.stdout)).admin_comment == GATE
        assert "denied" in as_owner(gate, "release", output.stdout.strip())
    finally:
        script.write_text(kept)
        os.utime(script, (soon, soon))


# -- what cannot be honored, and the site's classes ---
SITE = """
[policy]
min_runtime_max_seconds = 3600
[[class]]
name = "alarms"
partition = ["urgent"]
account = ["weather", "quakes"]
urgent = true
[[class]]
name = "free"
account = ["free"]
methods = ["requeue", "suspend", "dmtcp"]
default = ["requeue"]
[[class]]
name = "beamline"
account = ["beam"]
realtime = true
slowdown_bound = 1.5
[[class]]
name = "main"
partition = ["main"]
methods = ["suspend"]
"""


def site_of(cluster: LocalSlurm) -> Config:
    return parse_config(SITE + f'[daemon]\nrun_dir = "{cluster.directory}"\n', "site")


@pytest.fixture
def site(gate: LocalSlurm) -> Iterator[LocalSlurm]:
    """The gate, with settings that were made from a configuration."""
    conf = gate.directory / "omfs_job_submit.conf"
    kept = conf.read_text()
    conf.write_text(as_text({**plugin_settings(site_of(gate), [0]), "max_age": MAX_AGE}))
    try:
        yield gate
    finally:
        conf.write_text(kept)


def refusal(cluster: LocalSlurm, *arguments: str, command: str = "sbatch") -> str:
    """What the owner is told about a job that is not taken; "" if it is."""
    what = ("--wrap=sleep 3600",) if command == "sbatch" else ("true",)
    output = cluster.command(command, *arguments, *what, check=False, uid=OWNER)
    return output.stderr if output.code else ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("omfs:method=nonsense", "omfs: nonsense is not offered (offered to this job: requeue,suspend,dmtcp,"),
        ("omfs:methods=requeue", "omfs: omfs:methods= is unknown: it is omfs:method="),
        ("omfs: method=requeue", "omfs: omfs: has no value: write omfs:method=requeue, for instance, without blanks"),
        ("omfs:method =requeue", "omfs: omfs:method has no value: write omfs:method=requeue"),
        ("a omfs:min-runtime=60", "omfs: omfs:min-runtime= is unknown: it is omfs:min_runtime="),
        ("omfs:prio=7 omfs:method=requeue", "omfs: omfs:prio= is unknown: there are omfs:method=, omfs:exclude="),
        ("a omfs:method=none,never b", "omfs: none is not offered, never is not offered ("),
        ("xomfs:method=requeue", "omfs: omfs:method=NAME[,NAME...] must stand once in the comment"),
        ("omfs:method=requeue,", "must stand once"),
        ("omfs:method=none\u00a0omfs:method=requeue", "must stand once"),
        ("a omfs:method=requeue omfs:method=none", "must stand once"),
        ("omfs:min_runtime=60", "omfs: omfs:min_runtime=SECONDS is not offered"),
    ],
)
def test_refuses_what_nobody_offers(gate: LocalSlurm, words: str, told: str) -> None:
    said = refusal(gate, f"--comment={words}")
    assert told in said
    assert "Requested operation not supported" in said
    assert gate.gateway().jobs() == []
    beat(gate, GONE)
    assert refusal(gate, f"--comment={words}") == "", "without a daemon nothing is refused"


def test_refuses_to_requeue_what_slurm_may_not(gate: LocalSlurm) -> None:
    said = refusal(gate, "--comment=omfs:method=requeue", "--no-requeue")
    assert "omfs: requeue needs a job without --no-requeue" in said
    for command in ("salloc", "srun"):
        said = refusal(gate, "--comment=omfs:method=requeue,dmtcp", command=command)
        assert "omfs: requeue is for batch jobs, dmtcp is for batch jobs" in said


@pytest.mark.parametrize("nodes", ["--nodes=2", "--nodes=2-4", "--nodelist=n[1-2]", "--constraint=fast*2"])
def test_refuses_to_checkpoint_several_nodes_with_a_tool_for_one(gate: LocalSlurm, nodes: str) -> None:
    for methods in ("dmtcp", "criu,dmtcp"):
        said = refusal(gate, nodes, f"--comment=omfs:method={methods}")
        assert "omfs: " + ", ".join(f"{name} works on one node only" for name in methods.split(",")) in said
    output = gate.command(
        "sbatch", "--parsable", nodes, "--comment=omfs:method=dmtcp,requeue", "--wrap=true", uid=OWNER
    )
    assert "omfs: dmtcp works on one node only (offered to this job: requeue," in output.stderr
    assert look(gate, int(output.stdout)).hold is Hold.NONE
    for methods in ("application", "dmtcp"):
        assert (
            refusal(gate, nodes if methods == "application" else "--nodes=1", f"--comment=omfs:method={methods}") == ""
        )


def test_nor_does_the_owner_get_several_nodes_later(gate: LocalSlurm) -> None:
    job = submit(gate, "--comment=omfs:method=dmtcp", "--ntasks=2", "--begin=now+1hour")
    assert job.hold is Hold.NONE
    for change in ("numnodes=2", "nodelist=n[1-2]", "features=fast*1&fast*1"):
        assert "denied" in as_owner(gate, "update", f"jobid={job.id}", change), change
    for change in ("numnodes=1", "nodelist=n1", "features=fast*1"):
        assert as_owner(gate, "update", f"jobid={job.id}", change) == "", change


def test_nor_does_it_let_in_what_slurm_requeues_in_no_case(gate: LocalSlurm) -> None:
    """A job of salloc or srun: the daemon is told that it cannot be requeued, so that it does not count on it."""
    said = refusal(gate, "--account=free", "--immediate=1", command="srun")
    assert "Unable to allocate resources" in said
    assert refusal(gate, "--account=free", "--immediate=240", "--comment=omfs:method=suspend", command="srun") == ""
    beat(gate, GONE)
    shown = gate.command("srun", "--account=free", "sh", "-c", "scontrol -o show job $SLURM_JOB_ID", uid=OWNER).stdout
    assert " Requeue=0 " in shown
    assert look(gate, submit(gate, "--account=free").id).requeue


def test_what_can_be_honored_in_part_is_let_in_with_a_message(site: LocalSlurm) -> None:
    arguments = ("--account=free", "--comment=omfs:method=criu,suspend")
    output = site.command("sbatch", "--parsable", *arguments, "--wrap=sleep 3600", uid=OWNER)
    assert "omfs: criu is not offered (offered to this job: requeue,suspend,dmtcp)" in output.stderr
    assert look(site, int(output.stdout)).hold is Hold.NONE


@pytest.mark.parametrize("account", ["physics", ""])
def test_refuses_an_urgent_job_of_who_may_not(site: LocalSlurm, account: str) -> None:
    said = refusal(site, "--partition=urgent", *([f"--account={account}"] if account else []))
    whose = f"this is one of {account}" if account else "this one names no account"
    assert f"omfs: urgent jobs are for the accounts weather,quakes; {whose}" in said
    assert "denied" in said
    assert site.gateway().jobs() == []
    beat(site, GONE)
    assert submit(site, "--partition=urgent").hold is Hold.NONE


@pytest.mark.parametrize(
    ("arguments", "held"),
    [
        (("--partition=urgent", "--account=quakes"), True),  # never stopped: omfsd lets it go
        (("--partition=urgent", "--account=quakes", "--comment=omfs:method=requeue"), True),
        (("--partition=main,urgent", "--account=physics"), True),
        (("--account=free",), False),
        (("--account=free", "--no-requeue"), True),
        (("--account=free", "--no-requeue", "--comment=omfs:method=dmtcp"), False),
        (("--account=free", "--partition=main,urgent", "--comment=omfs:method=dmtcp"), False),
        (("--comment=omfs:method=suspend",), False),
        (("--comment=omfs:method=suspend omfs:min_runtime=3600",), False),
        (("--account=physics",), True),
    ],
)
def test_the_sites_classes_decide_who_is_held(site: LocalSlurm, arguments: tuple[str, ...], held: bool) -> None:
    job = submit(site, *arguments)
    assert (job.hold, job.admin_comment) == ((Hold.USER, GATE) if held else (Hold.NONE, ""))


@pytest.mark.parametrize("partition", ["main", "urgent", "main,urgent"])
@pytest.mark.parametrize("account", ["free", "quakes", "physics"])
def test_it_holds_what_the_daemon_would_never_preempt(site: LocalSlurm, partition: str, account: str) -> None:
    """Both read the same classes, each in its own language."""
    by = rules(site_of(site), ())
    for comment in ("", "omfs:method=suspend", "omfs:method=requeue,dmtcp"):
        for option in ("--requeue", "--no-requeue", "--nodes=2"):
            arguments = (f"--partition={partition}", f"--account={account}", f"--comment={comment}", option)
            said = refusal(site, *arguments)
            if said:
                assert "omfs: urgent jobs are for" in said or "is not offered" in said
                continue
            (listed,) = site.gateway().jobs()
            job = look(site, listed.id)
            assert (job.hold is Hold.USER) == (not classify(by, job).methods), arguments
            clear(site)


@pytest.mark.parametrize(
    "words", ["=3601", "=0", "=", "=1h", "=-1", "=60 omfs:min_runtime=61", "=99999999999999999999"]
)
def test_refuses_a_minimum_run_time_beyond_the_sites(site: LocalSlurm, words: str) -> None:
    said = refusal(site, f"--comment=omfs:min_runtime{words}")
    assert "omfs: omfs:min_runtime=SECONDS must stand once in the comment, with 1 to 3600 seconds" in said


def test_nor_does_the_owner_get_it_later(site: LocalSlurm) -> None:
    job = submit(site, "--comment=omfs:method=suspend omfs:min_runtime=60")
    wait_until(runs(site, job), "the job to run")
    change = f"jobid={job.id}"
    assert "denied" in as_owner(site, "update", change, "comment=omfs:method=suspend omfs:min_runtime=3601")
    assert as_owner(site, "update", change, "comment=omfs:method=suspend omfs:min_runtime=3600") == ""
    conf = site.directory / "omfs_job_submit.conf"
    conf.write_text(conf.read_text().replace("min_runtime_max = 3600", "min_runtime_max = 0"))
    kept = "omfs:method=suspend omfs:min_runtime=3600 omfs:run=0:ready:method=dmtcp"
    assert as_owner(site, "update", change, f"comment={kept}") == "", "omfs-run can still write its word"
    assert look(site, job.id).comment == kept


@pytest.mark.parametrize("words", ["=1.49", "=0", "=", "=2x", "=-2", "=2 omfs:bound=3", "=2.", "=1e9", "=1234567"])
def test_refuses_a_bound_that_is_no_looser_than_the_classs(site: LocalSlurm, words: str) -> None:
    said = refusal(site, "--account=beam", f"--comment=omfs:bound{words}")
    assert "omfs: omfs:bound=NUMBER must stand once in the comment, with a number of at least 1.5" in said


def test_a_looser_bound_is_for_real_time_jobs_only_and_later_ones_are_the_same(site: LocalSlurm) -> None:
    said = refusal(site, "--account=free", "--comment=class=beamline omfs:bound=2")
    assert "omfs: omfs:bound=2 is for jobs of real-time classes; this one is of none" in said
    job = submit(site, "--account=beam", "--comment=omfs:bound=2.25")
    assert look(site, job.id).comment.startswith("omfs:bound=2.25")
    change = f"jobid={job.id}"
    assert "denied" in as_owner(site, "update", change, "comment=omfs:bound=1.01")
    assert as_owner(site, "update", change, "comment=omfs:bound=1.5") == "", "what the class promises is his"
    assert (
        "real-time jobs are not preempted"
        in site.command("sbatch", "--account=beam", "--comment=omfs:method=suspend", "--wrap=true", uid=OWNER).stderr
    )


def test_its_defaults_are_those_of_the_configuration() -> None:
    (block,) = re.findall(r"local DEFAULTS = \{\n(.*?)\n\}", PLUGIN.read_text(), re.DOTALL)
    defaults = dict(re.findall(r'(\w+) = "(.*)",', block))
    expected = plugin_settings(Config(), [0])
    assert {name: defaults[name] for name in expected} == expected
    assert {name for name in defaults if name not in expected} == {"let_in_partitions", "let_in_accounts", "let_in_qos"}


# -- waking the daemon ---
def test_a_submit_and_an_owners_change_wake_the_daemon(gate: LocalSlurm, woken: Woken) -> None:
    job = submit(gate, "--comment=omfs:method=requeue", "--hold")
    assert woken.is_later()
    as_owner(gate, "release", str(job.id))
    assert woken.is_later()


def test_for_an_urgent_job_it_is_woken_at_once(site: LocalSlurm, woken: Woken) -> None:
    job = submit(site, "--account=beam", "--hold")
    assert woken.is_at_once()
    as_owner(site, "release", str(job.id))
    assert woken.is_at_once()
    regular = submit(site, "--hold")
    assert woken.is_later()
    as_owner(site, "update", f"jobid={regular.id}", "account=beam")
    assert woken.is_at_once()


def test_without_a_daemon_nobody_is_woken_and_nobody_waits(cluster: LocalSlurm, woken: Woken) -> None:
    beat(cluster, GONE)
    job = submit(cluster, "--comment=omfs:method=requeue")
    assert look(cluster, job.id).hold is Hold.NONE
    assert not woken.urgent.is_set() and not woken.later.is_set()


@pytest.mark.parametrize("words", ["=KILL", "=", "=B:", "=usr2", "=USR2@60", "=USR2 omfs:signal=TERM"])
def test_refuses_a_signal_that_warns_nobody(site: LocalSlurm, words: str) -> None:
    said = refusal(site, f"--comment=omfs:signal{words}")
    assert "omfs: omfs:signal=NAME must stand once in the comment, with none, or [B:] and one of HUP,INT" in said


def test_a_job_that_excludes_all_its_methods_is_not_preemptible(site: LocalSlurm) -> None:
    said = refusal(site, "--comment=omfs:method=suspend omfs:exclude=suspend")
    assert "omfs: suspend is excluded by omfs:exclude=suspend" in said
    assert "omfs: omfs:exclude=NAME[,NAME...] must stand once" in refusal(site, "--comment=omfs:exclude=a,,b")
    job = submit(site, "--comment=omfs:method=suspend")
    change = ("update", f"jobid={job.id}", "comment=omfs:method=suspend omfs:exclude=suspend")
    assert "denied" in as_owner(site, *change), "what was let in as preemptible stays so"


SUBMITIT = "#!/bin/bash\n#SBATCH --hold\n# command\nexport SUBMITIT_EXECUTOR=slurm\nsrun sleep 3600\n"


@pytest.mark.parametrize(
    ("script", "comment", "written"),
    [
        (SUBMITIT, "", "omfs:exclude=suspend,pageout,ve_swap"),
        (SUBMITIT, "mine", "mine omfs:exclude=suspend,pageout,ve_swap"),
        (SUBMITIT, "omfs:method=suspend", "omfs:method=suspend"),
        (SUBMITIT, "omfs:exclude=suspend", "omfs:exclude=suspend"),
        (SUBMITIT.replace("export", "# export"), "", ""),
    ],
)
def test_what_a_client_cannot_bear_is_excluded_unless_the_owner_chooses(
    site: LocalSlurm, script: str, comment: str, written: str
) -> None:
    job = look(site, site.submit(script, f"--comment={comment}", uid=OWNER))
    assert job.comment == written


def test_the_plug_in_knows_the_same_clients_and_tells_their_users(site: LocalSlurm) -> None:
    text = PLUGIN.read_text()
    for client in CLIENTS:
        assert f'name = "{client.name}"' in text
        assert f'excluded = "{",".join(client.excluded)}"' in text
    script = site.output / "submitit.sh"
    script.write_text(SUBMITIT)
    said = site.command("sbatch", str(script), uid=OWNER).stderr
    assert "omfs: submitit takes SUSPENDED for the end: not preempted by suspend,pageout,ve_swap" in said
