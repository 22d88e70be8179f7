"""A site's own methods: the example is installed, found and used; broken ones are logged and left out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import JobRequest, JobState
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.preemption.methods.base import PreemptMethod
from omfs_daemon.preemption.methods.registry import BUILT_IN, GROUP, load_methods
from omfs_daemon.testing.fake_slurm.fake_jobs import Record, Submission
from tests.support.fake_site import Site
from tests.support.waiting import LIMIT, wait_until

EXAMPLE = Path(__file__).parents[3] / "plugins" / "example_method"
NAMES = [method.traits.name for method in BUILT_IN]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory from which Python imports; what was imported from it is forgotten afterwards."""
    path = tmp_path / "site-packages"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    before = set(sys.modules)
    yield path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(path)):
            del sys.modules[name]


def entries_of(room: Path) -> list[EntryPoint]:
    return [entry for found in distributions(path=[str(room)]) for entry in found.entry_points.select(group=GROUP)]


def installed(room: Path, package: str, entries: dict[str, str], **modules: str) -> list[EntryPoint]:
    """As pip leaves it, but for the modules, whose text is given."""
    for name, text in modules.items():
        (room / f"{name}.py").write_text(dedent(text))
    info = room / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()))
    return entries_of(room)


@pytest.fixture
def example(room: Path) -> PreemptMethod:
    """The example as its own pyproject.toml has it installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        shutil.copy(EXAMPLE / name, room)
    entries = installed(room, project["project"]["name"], project["project"]["entry-points"][GROUP])
    with capture_logs() as logged:
        found = load_methods(entries)
    assert logged == []
    assert list(found) == [*NAMES, "self_requeue"]
    return found["self_requeue"]


# -- the example on the fake Slurm ---------------------------------------------------------------------


WORD = "omfs:method=self_requeue omfs:run={}:{}:method=self_requeue"


class Jobs(Site):
    """bio may use the whole cluster. Its jobs do what job.sh does; if they do not obey, the trap alone is set."""

    def __init__(self, directory: Path, method: PreemptMethod, obey: bool = True) -> None:
        methods = {one.traits.name: one for one in (*BUILT_IN, method)}
        rules = Rules(
            tree=AccountTree([Entitlement("bio", 50), Entitlement("physics", 50)]),  # type: ignore[arg-type]
            classes=(JobClassRule("regular", methods=tuple(methods)),),
            quantum=0.0,
            methods={name: one.traits for name, one in methods.items()},
            unmatched=REGULAR,
            speeds={name: one.speed for name, one in methods.items()},
        )
        super().__init__(
            directory, rules, methods=methods, preempt_timeout=40.0, preempt_timeouts={"self_requeue": 50.0}
        )
        self.obey = obey
        self.send = self.slurm.send
        self.slurm.send = self.sent  # type: ignore[method-assign]

    def four(self, **more: Any) -> list[int]:
        """The whole cluster for bio; they have not reported yet that they are ready."""
        jobs = [
            self.slurm.submit(
                Submission(
                    JobRequest(4, max_nodes=1, partitions=("main",)),
                    user="bio",
                    account="bio",
                    run_time=300.0,
                    comment="omfs:method=self_requeue",
                    saves_on="USR2",
                    **more,
                )
            )
            for _ in range(4)
        ]
        self.submitted += jobs
        self.run(5)
        return jobs

    def report(self, job: int, state: str) -> None:
        self.slurm.set_comment(job, WORD.format(self.slurm.records[job].restarts, state))

    def sent(self, record: Record, name: str, batch_only: bool) -> None:
        self.send(record, name, batch_only)
        assert "ready" in record.comment, "it would have died of it"
        assert batch_only
        if self.obey:
            self.report(record.id, "stopping")
            self.slurm.requeue(record, hold=False)


def ready(site: Jobs) -> list[int]:
    jobs = site.four()
    for job in jobs:
        site.report(job, "ready")
    site.run(1)
    return jobs


def test_the_example_preempts_a_job_and_requeues_it_without_losing_work(example: PreemptMethod, tmp_path: Path) -> None:
    site = Jobs(tmp_path, example)
    jobs = ready(site)
    physics = site.submit("physics", run_time=60)
    site.run_until(lambda: site.runs(physics), limit=30)
    site.run(1)
    (preempted,) = [job for job in jobs if not site.runs(job)]
    assert "preempted" in [event.event for event in site.history_database.of_job(str(preempted))]
    site.run_until(lambda: site.runs(*jobs), limit=120)
    site.report(preempted, "ready")
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert sum(site.slurm.history[job].lost for job in jobs) == 0
    assert site.held() == []
    methods = [(paid.method, paid.direction) for paid in site.history_database.costs(0.0)]
    assert methods == [("self_requeue", "out"), ("self_requeue", "in")]


def test_a_job_that_has_not_reported_that_it_is_ready_is_left_alone(example: PreemptMethod, tmp_path: Path) -> None:
    site = Jobs(tmp_path, example)
    jobs = site.four()
    physics = site.submit("physics", run_time=60)
    site.run(60)
    assert site.runs(*jobs) and not site.runs(physics)
    site.report(jobs[2], "ready")
    site.run_until(lambda: site.runs(physics), limit=30)
    assert [job for job in jobs if not site.runs(job)] == [jobs[2]]


def test_a_job_that_does_not_obey_runs_on_and_the_preemption_is_undone(example: PreemptMethod, tmp_path: Path) -> None:
    site = Jobs(tmp_path, example, obey=False)
    jobs = ready(site)
    physics = site.submit("physics", run_time=60)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=90)
    assert [preemption.outcome for preemption in site.history_database.preemptions(10, 0.0)] == ["victim_not_preempted"]
    assert site.runs(*jobs) and site.state(physics) is JobState.PENDING


def test_a_job_that_requeues_itself_too_late_is_held_by_nobody(example: PreemptMethod, tmp_path: Path) -> None:
    site = Jobs(tmp_path, example, obey=False)
    jobs = ready(site)
    site.submit("physics", run_time=60)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=90)
    late = next(job for job in jobs if site.slurm.history[job].signals)
    site.slurm.requeue(site.slurm.records[late], hold=False)
    site.rest()
    assert site.held() == []
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_a_job_that_must_not_be_requeued_is_allowed_to_be(example: PreemptMethod, tmp_path: Path) -> None:
    site = Jobs(tmp_path, example)
    jobs = site.four(requeue=False)
    for job in jobs:
        site.report(job, "ready")
    physics = site.submit("physics", run_time=60)
    site.run_until(lambda: site.runs(physics), limit=30)
    assert [site.job(job).requeue for job in jobs if not site.runs(job)] == [True]


# -- the example's batch script --------------------------------------------------------------------------

PROGRAM = """\
import pathlib, signal, sys, time

def save(*_):
    pathlib.Path("saved").touch()
    sys.exit({code})

signal.signal(signal.SIGUSR2, save)
pathlib.Path("ready").touch()
time.sleep(3600)
"""


SCONTROL = """\
#!/bin/sh
if [ "$1" = update ]; then echo "$@" >> said; else echo "$@" > told.part; mv told.part told; fi
"""


def appears(path: Path, process: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: path.exists() or process.poll() is not None, path.name)
    assert path.exists(), f"exit code {process.poll()}"


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """job.sh with a program that ends with a code when it is asked, and a scontrol that notes what it is told."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(code: int) -> subprocess.Popen[bytes]:
        for name, text in (
            ("simulate", f"#!{sys.executable}\n{PROGRAM.format(code=code)}"),
            ("scontrol", SCONTROL),
        ):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "77",
            "SLURM_RESTART_COUNT": "2",
        }
        running.append(subprocess.Popen([EXAMPLE / "job.sh"], cwd=tmp_path, env=environment, start_new_session=True))
        appears(tmp_path / "ready", running[-1])
        appears(tmp_path / "said", running[-1])
        running[-1].send_signal(signal.SIGUSR2)
        return running[-1]

    yield begin
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT)


def test_the_script_requeues_itself_once_its_work_is_saved(
    script: Callable[[int], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = script(75)
    appears(tmp_path / "told", process)
    process.send_signal(signal.SIGUSR2)  # asked again: the trap is off
    assert (tmp_path / "told").read_text() == "requeue 77\n"
    said = (tmp_path / "said").read_text().splitlines()
    assert said == [f"update jobid=77 comment={WORD.format(2, state)}" for state in ("ready", "stopping")]
    assert (tmp_path / "saved").exists()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)  # an end of its own would be the job's


@pytest.mark.parametrize("code", [0, 3])
def test_the_script_requeues_nothing_that_is_not_saved(
    script: Callable[[int], subprocess.Popen[bytes]], tmp_path: Path, code: int
) -> None:
    assert script(code).wait(LIMIT) == code
    assert not (tmp_path / "told").exists()


def test_the_guide_quotes_the_example_as_it_is() -> None:
    guide = (EXAMPLE.parents[1] / "docs" / "methods.md").read_text()
    code = (EXAMPLE / "omfs_self_requeue.py").read_text() + (EXAMPLE / "pyproject.toml").read_text()
    section = guide[guide.index("The method, line by line:") : guide.index("In `job.sh` four lines")]
    quoted = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    whole = [line for line in quoted if "(...)" not in line and not line.startswith("def ")]
    assert len(whole) > 5 and [line for line in whole if line not in code] == []
    for function in (line for line in quoted if line.startswith("def ")):
        assert function.partition("(")[0] + "(" in code
    script = (EXAMPLE / "job.sh").read_text()
    told = [line.partition("`")[0] for line in guide[guide.index("four lines carry") :].split("\n- `")[1:]]
    assert len(told) == 4 and [line for line in told if line not in script] == []
    assert [name for name in NAMES if f"| `{name}` |" not in guide] == []


# -- broken ones -------------------------------------------------------------------------------------------

GOOD = """
    from omfs_daemon.cluster.preempt_methods import MethodTraits
    from omfs_daemon.preemption.methods.requeue import RequeueMethod

    class Good(RequeueMethod):
        traits = MethodTraits({name!r}, keeps_work=False, leaves=True)

    METHOD = Good()
"""


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("no_import", "import a_module_that_nobody_has\nMETHOD = 1", "a_module_that_nobody_has"),
        ("raises", "raise ValueError('at import')", "at import"),
        ("leaves", "import sys\nsys.exit('at import')", "at import"),
        ("no_module", "import omfs_daemon.preemption.methods.nothing\n", "nothing"),
        ("bad_syntax", "METHOD = (\n", "never closed"),
        ("no_object", "OTHER = 1\n", "METHOD"),
        ("no_methods", "METHOD = object()\n", "it has no prepare, preempt, finish, progress"),
        ("no_traits", GOOD.format(name="x") + "\n    METHOD.traits = 'x'\n", "its traits must be a MethodTraits"),
        ("another_name", GOOD.format(name="something"), "its name is 'something'"),
        ("requeue", GOOD.format(name="requeue"), "there is a method 'requeue' already"),
        ("Shouts", GOOD.format(name="Shouts"), "made of a-z"),
    ],
)
def test_a_broken_one_is_logged_and_left_out(room: Path, name: str, text: str, error: str) -> None:
    entries = installed(
        room,
        "broken-methods",
        {name: f"broken_{name.lower()}:METHOD", "works_well": "works_well:METHOD"},
        **{f"broken_{name.lower()}": text, "works_well": GOOD.format(name="works_well")},
    )
    with capture_logs() as logged:
        found = load_methods(entries)
    assert list(found) == [*NAMES, "works_well"], "the others are not kept out by it"
    assert found["requeue"] is BUILT_IN[0]
    (line,) = logged
    assert (line["event"], line["log_level"]) == ("method_not_loaded", "error")
    assert (line["entry_point"], line["package"]) == (name, "broken-methods")
    assert error in line["error"]
