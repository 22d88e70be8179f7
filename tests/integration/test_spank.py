"""The SPANK plug-in as `make -C plugins install` puts it there, on a real Slurm: its options, and where they arrive."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, Job
from omfs_daemon.omfs_run import driver_table as drivers
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.conftest import clear
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

PLUGINS = Path(__file__).parents[2] / "plugins"
OWNER = "nobody"
OPTIONS = ("--omfs-method=suspend,dmtcp", "--omfs-ckptdir=/ck pt", "--omfs-min-runtime=1-2:3")
WORDS = "omfs:method=suspend,dmtcp omfs:min_runtime=93780"
BAD_BOUNDS = ("", "0", "0.5", "1.", ".5", "1,5", "-2", "1e3", "1234567", "2.1234567", "2 ", "inf")
IN_JOB = {"OMFS_METHOD=dmtcp", "OMFS_CKPT_DIR=/ck pt"}

# What a user can make his own sbatch send, with a SPANK plug-in of his own.
FORGERY = """
#include <slurm/spank.h>
SPANK_PLUGIN(forger, 1)
int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
    (void)count, (void)arguments;
    spank_job_control_setenv(spank, "OMFS_METHOD", "suspend omfs:wait omfs:min_runtime=1", 1);
    spank_job_control_setenv(spank, "OMFS_MIN_RUNTIME", "99999999999", 1);
    return 0;
}
"""


def made(*arguments: str) -> None:
    subprocess.run(["make", "-s", "-C", PLUGINS, *arguments], check=True, timeout=LIMIT)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="omfs-spank-"))
    found.chmod(0o755)
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


@pytest.fixture(scope="module")
def root(directory: Path) -> Path:
    """Where everything was installed, as below /."""
    found = directory / "root"
    made("install", f"BUILD={directory / 'build'}", f"DESTDIR={found}", "prefix=/usr", "rundir=/run/other")
    return found


@pytest.fixture(scope="module")
def cluster(directory: Path, root: Path) -> Iterator[LocalSlurm]:
    """A cluster with what was installed; DESTDIR comes before the path in plugstack.conf, as no package is made."""
    line = (root / "etc/slurm/plugstack.conf.d/omfs.conf").read_text().replace("/usr/", f"{root}/usr/")
    gate = SubmitGate(
        root / "etc/slurm/job_submit.lua",
        {
            "heartbeat": str(directory / "heartbeat"),
            "max_age": "3600",  # it does not grow old within a test
            "min_runtime_max": "100000",
            "let_in_accounts": "free",
        },
    )
    with LocalSlurm(
        directory / "slurm", Shape(nodes=2), gate=gate, files={"plugstack.conf": line}, limit=LIMIT
    ) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: LocalSlurm, directory: Path) -> Iterator[LocalSlurm]:
    """While the daemon seems to live."""
    (directory / "heartbeat").write_text(f"{int(time.time())}\n")
    yield cluster
    clear(cluster)


def find(slurm: LocalSlurm, job: int) -> Job:
    found = slurm.gateway().find(job)
    assert found is not None
    return found


def printed(slurm: LocalSlurm, name: str, what: str = "the job's output") -> list[str]:
    """The lines of a finished output."""
    path = slurm.output / name
    wait_until(lambda: path.exists() and path.read_text().endswith("done\n"), what)
    return path.read_text().splitlines()


def ours(lines: list[str]) -> set[str]:
    return {line for line in lines if line.startswith("OMFS_")}


def test_installs_its_files_and_no_others(root: Path) -> None:
    files = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    assert files == {
        "usr/lib/omfs/omfs_children.so",
        "usr/lib/omfs/omfs_coordinator.so",
        "usr/lib/omfs/omfs_spank.so",
        "usr/libexec/omfs/epilog_slurmctld",
        "etc/slurm/plugstack.conf.d/omfs.conf",
        "etc/slurm/omfs_job_submit.lua",
        "etc/slurm/job_submit.lua",
    }
    assert (root / "etc/slurm/plugstack.conf.d/omfs.conf").read_text() == "optional /usr/lib/omfs/omfs_spank.so\n"
    assert "wake=/run/other/wake_later\n" in (root / "usr/libexec/omfs/epilog_slurmctld").read_text()
    assert (root / "usr/libexec/omfs/epilog_slurmctld").stat().st_mode & 0o777 == 0o755


def test_keeps_a_job_submit_script_of_the_sites(directory: Path, tmp_path: Path) -> None:
    script = tmp_path / "etc/slurm/job_submit.lua"
    script.parent.mkdir(parents=True)
    script.write_text("-- the site's own\n")
    made("install", f"BUILD={directory / 'build'}", f"DESTDIR={tmp_path}", "prefix=/usr")
    assert script.read_text() == "-- the site's own\n"
    shutil.copy(PLUGINS / "job_submit.lua", script)
    made("install", f"BUILD={directory / 'build'}", f"DESTDIR={tmp_path}", "prefix=/usr")
    assert script.is_symlink(), "an older one of ours is replaced"
    assert script.read_text() == (PLUGINS / "job_submit.lua").read_text()


def test_builds_the_helper_for_criu_too_and_cleans_up(tmp_path: Path) -> None:
    made(f"BUILD={tmp_path}")
    made_files = {"omfs_children.so", "omfs_coordinator.so", "omfs_spank.so", "omfs-criu", "omfs-criu-attach"}
    assert {path.name for path in tmp_path.iterdir()} == made_files
    made("clean", f"BUILD={tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_help_shows_the_options(slurm: LocalSlurm, command: str) -> None:
    shown = slurm.command(command, "--help").stdout
    for option in (
        "--omfs-method=NAME[,NAME...]",
        "--omfs-ckptdir=DIR",
        "--omfs-min-runtime=TIME",
        "--omfs-bound=NUMBER",
        "--omfs-exclude=NAME[,NAME...]",
        "--omfs-signal=[B:]NAME",
    ):
        assert option in shown


BAD_METHODS = ("", "A", "a,,b", ",a", "a,", "a b", "a\n", "x" * 256)
BAD_SIGNALS = ("", "KILL", "STOP", "usr2", "SIGUSR2", "USR2 ", "B:", "B:none", "b:TERM", "12", "USR2@60")
BAD_DIRECTORIES = ("", "here", "./a", "/a\nb", "/" + "x" * 4096)
BAD_TIMES = ("", "0", "0:0:0", "-1", "1h", "1:2:3:4", "1-2-3", "1:2-3", "1-", ":1", "1:", "123456789", "9 ")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        *(("method", value, "names of a-z, 0-9 and _") for value in BAD_METHODS),
        *(("exclude", value, "names of a-z, 0-9 and _") for value in BAD_METHODS),
        *(("signal", value, "none, or HUP, INT, QUIT, TERM, USR1 or USR2,") for value in BAD_SIGNALS),
        *(("ckptdir", value, "an absolute path") for value in BAD_DIRECTORIES),
        *(("bound", value, "a number of at least 1,") for value in BAD_BOUNDS),
        *(("min-runtime", value, "a time above 0: minutes, minutes:seconds,") for value in BAD_TIMES),
    ],
)
def test_a_bad_value_is_refused_before_anything_is_submitted(
    slurm: LocalSlurm, option: str, value: str, told: str
) -> None:
    said = slurm.command("sbatch", f"--omfs-{option}={value}", "--wrap=true", check=False, uid=OWNER)
    assert said.code != 0
    assert f"sbatch: error: omfs: --omfs-{option}: must be {told}" in said.stderr
    assert slurm.gateway().jobs() == []


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_by_all_commands(slurm: LocalSlurm, command: str) -> None:
    said = slurm.command(command, "--omfs-ckptdir=here", "true", check=False, uid=OWNER)
    assert said.code != 0
    assert f"{command}: error: omfs: --omfs-ckptdir: must be an absolute path" in said.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2", 120), ("1:30", 90), ("1:2:3", 3723), ("1-2", 93600), ("1-2:3", 93780), ("1-2:3:4", 93784), ("0:1", 1)],
)
def test_times_are_as_slurm_writes_them(slurm: LocalSlurm, text: str, seconds: int) -> None:
    job = slurm.submit("true", "--hold", f"--omfs-min-runtime={text}", uid=OWNER)
    assert find(slurm, job).comment == f"omfs:min_runtime={seconds}"


def test_the_daemon_sees_the_options_beside_the_users_own_comment(slurm: LocalSlurm) -> None:
    job = slurm.submit("sleep 3600", "--comment=my own  words", *OPTIONS, uid=OWNER)
    assert find(slurm, job).comment == f"my own  words {WORDS}"
    assert find(slurm, job).hold is Hold.NONE, "the gate lets it in by its method"
    array = slurm.submit("sleep 3600", "--array=1-2", "--omfs-method=requeue", uid=OWNER)
    assert find(slurm, array).comment == "omfs:method=requeue"


def test_options_may_stand_in_the_script(slurm: LocalSlurm) -> None:
    job = slurm.submit("#!/bin/sh\n#SBATCH --hold\n#SBATCH --omfs-method=requeue\ntrue\n", uid=OWNER)
    assert find(slurm, job).comment == "omfs:method=requeue"


def test_an_option_and_the_comment_may_not_contradict_each_other(slurm: LocalSlurm) -> None:
    words = ("--omfs-method=requeue", "--comment=omfs:method=suspend")
    said = slurm.command("sbatch", *words, "--wrap=true", check=False, uid=OWNER)
    assert "omfs: the comment and the option do not agree on omfs:method=requeue: give one of them" in said.stderr
    job = slurm.submit("true", "--hold", "--omfs-method=suspend", words[1], uid=OWNER)
    assert find(slurm, job).comment == "omfs:method=suspend"


def test_a_bound_goes_into_the_comment_and_is_for_real_time_jobs_only(slurm: LocalSlurm, directory: Path) -> None:
    said = slurm.command("sbatch", "--omfs-bound=2.5", "--wrap=true", check=False, uid=OWNER)
    assert "omfs: omfs:bound=2.5 is for jobs of real-time classes; this one is of none" in said.stderr
    (directory / "heartbeat").unlink()
    job = slurm.submit("true", "--hold", "--comment=mine", "--omfs-bound=2.5", uid=OWNER)
    assert find(slurm, job).comment == "mine omfs:bound=2.5"


def test_what_warns_a_job_and_what_it_excludes_go_into_the_comment(slurm: LocalSlurm) -> None:
    options = ("--omfs-signal=B:TERM", "--omfs-exclude=suspend,pageout")
    job = slurm.submit("/usr/bin/env; echo done", "--account=free", "--output=signal.out", *options, uid=OWNER)
    assert find(slurm, job).comment == "omfs:exclude=suspend,pageout omfs:signal=B:TERM"
    assert ours(printed(slurm, "signal.out")) == set()


def test_what_the_site_does_not_offer_is_refused(slurm: LocalSlurm) -> None:
    for option, told in (
        ("--omfs-method=nonsense", "omfs: nonsense is not offered"),
        ("--omfs-min-runtime=2-0", "with 1 to 100000 seconds"),
    ):
        said = slurm.command("sbatch", option, "--wrap=true", check=False, uid=OWNER)
        assert (said.code != 0, told in said.stderr) == (True, True)


def test_without_a_daemon_the_options_arrive_all_the_same(slurm: LocalSlurm, directory: Path) -> None:
    (directory / "heartbeat").unlink()
    job = slurm.submit("sleep 3600", "--comment=mine", *OPTIONS, uid=OWNER)
    assert find(slurm, job).comment == f"mine {WORDS}"
    assert find(slurm, job).hold is Hold.NONE


@pytest.mark.parametrize("export", ["ALL", "NONE", "HOME"])
def test_a_job_has_them_in_its_environment(slurm: LocalSlurm, export: str) -> None:
    name = f"{export}.out"
    slurm.submit("/usr/bin/env; echo done", *OPTIONS, f"--export={export}", f"--output={name}", uid=OWNER)
    assert ours(printed(slurm, name)) == IN_JOB


def test_and_after_a_requeue_too(slurm: LocalSlurm) -> None:
    script = "#!/bin/sh\nenv >out.$SLURM_RESTART_COUNT; echo done >>out.$SLURM_RESTART_COUNT; sleep 3600\n"
    job = slurm.submit(script, *OPTIONS, "--export=NONE", uid=OWNER)
    assert ours(printed(slurm, "out.")) == IN_JOB
    slurm.command("scontrol", "requeue", str(job))
    assert ours(printed(slurm, "out.1", "the output of the second run")) == IN_JOB
    assert find(slurm, job).comment == WORDS


@pytest.mark.parametrize("method", [*drivers.NAMES, "requeue"])
def test_omfs_run_gets_the_methods_that_it_knows(slurm: LocalSlurm, method: str) -> None:
    """What it does not know it would refuse; what was in the environment before does not count then."""
    name = f"{method}.out"
    options = (f"--omfs-method=suspend,{method}", f"--output={name}", "--export=OMFS_METHOD=other")
    slurm.submit("/usr/bin/env; echo done", *options, uid=OWNER)
    assert ours(printed(slurm, name)) == ({f"OMFS_METHOD={method}"} if method in drivers.NAMES else set())


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_srun_and_salloc_have_them_too(slurm: LocalSlurm, command: str) -> None:
    look = "env; scontrol -o show job $SLURM_JOB_ID"
    options = ("--omfs-method=suspend", "--omfs-ckptdir=/ck", "--comment=mine")
    shown = slurm.command(command, *options, "sh", "-c", look, uid=OWNER).stdout
    assert ours(shown.splitlines()) == {"OMFS_CKPT_DIR=/ck"}
    assert " Comment=mine omfs:method=suspend " in f"{shown} "


def test_an_srun_inside_a_job_does_not_change_it(slurm: LocalSlurm) -> None:
    """With the options of the job or with its own; an sbatch in there has the job's options, as Slurm hands them on."""
    script = (
        "#!/bin/sh\nsrun env\nsrun --omfs-method=criu true\n"
        "sbatch --parsable --hold --wrap=true\nsbatch --parsable --hold --omfs-method=requeue --wrap=true\necho done\n"
    )
    job = slurm.submit(script, *OPTIONS, "--output=inside.out", uid=OWNER)
    lines = printed(slurm, "inside.out")
    assert ours(lines) == IN_JOB
    assert find(slurm, job).comment == WORDS
    children = [int(line) for line in lines if line.isdigit()]
    assert [find(slurm, child).comment for child in children] == [WORDS, WORDS.replace("suspend,dmtcp", "requeue")]


def test_a_job_that_names_nothing_is_as_without_us(slurm: LocalSlurm) -> None:
    plugstack = slurm.directory / "plugstack.conf"
    kept = plugstack.read_text()

    def seen(name: str) -> set[str]:
        job = slurm.submit("/usr/bin/env; echo done", "--account=free", f"--output={name}", uid=OWNER)
        assert find(slurm, job).comment == ""
        same = (
            "SLURM_JOB_ID",
            "SLURM_JOBID",
            "SLURM_TASK_PID",
            "SLURMD_NODENAME",
            "SLURM_JOB_NODELIST",
            "SLURM_NODELIST",
        )
        return {line for line in printed(slurm, name) if not line.startswith(same)}

    with_us = seen("with.out")
    try:
        plugstack.write_text("")
        without_us = seen("without.out")
    finally:
        plugstack.write_text(kept)
    assert with_us == without_us
    assert not any("SPANK" in line.partition("=")[0] for line in with_us)


def test_what_a_user_forges_has_no_more_power_than_the_comment(slurm: LocalSlurm, directory: Path) -> None:
    source, forger = directory / "forger.c", directory / "forger.so"
    source.write_text(FORGERY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", forger, source], check=True, timeout=LIMIT)
    plugstack, conf = directory / "forged-plugstack.conf", directory / "forged-slurm.conf"
    plugstack.write_text(f"required {forger}\n")
    conf.write_text(slurm.conf.read_text() + f"PlugStackConfig={plugstack}\n")
    forged = ["env", f"SLURM_CONF={conf}", "sbatch", "--hold", "--comment=mine", "--wrap=true"]
    said = slurm.command(*forged, check=False, uid=OWNER)
    assert said.code != 0
    assert "with 1 to 100000 seconds" in said.stderr

    (directory / "heartbeat").unlink()
    job = int(slurm.command(*forged[:3], "--parsable", *forged[3:], uid=OWNER).stdout)
    assert find(slurm, job).comment == "mine omfs:min_runtime=99999999999", "what is no list of methods is left out"


def test_a_bad_value_in_the_environment_does_not_reach_the_job(slurm: LocalSlurm) -> None:
    variables = ["env", "SLURM_SPANK_OMFS_CKPT_DIR=here", "SLURM_SPANK_OMFS_METHOD=a b"]
    submit = ["sbatch", "--parsable", "--export=NONE", "--account=free", "--output=bad.out"]
    slurm.command(*variables, *submit, "--wrap=/usr/bin/env; echo done", uid=OWNER)
    assert ours(printed(slurm, "bad.out")) == set()
    as_slurm_does = "SLURM_SPANK__SLURM_SPANK_OPTION_omfs_omfs_method=A"
    bad = slurm.command("env", as_slurm_does, *submit, "--wrap=true", check=False, uid=OWNER)
    assert (bad.code != 0, "--omfs-method: must be names" in bad.stderr) == (True, True)
