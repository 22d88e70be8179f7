"""Models that are trained in a process of their own: what is taken over, and what happens when none comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from omfs_daemon.daemon.learning.model_child import training_set
from omfs_daemon.daemon.learning.model_training import NEW_JOBS, TRAIN_EVERY, ModelTraining
from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.daemon.store.ended_jobs import EndedJobs, latest_ends
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm_training import LEAST_JOBS
from omfs_daemon.predict.job_ends import JobEnd
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.predict.run_inputs import INPUTS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.system
ANN = JobFeatures(user="ann", limit=10_000.0)
NOW = 1e6


class Site:
    """``logged``: the log lines of all steps."""

    def __init__(self, directory: Path) -> None:
        self.now = NOW
        self.store = EndedJobs(directory / "ended?jobs.sqlite", 100_000)
        self.runs = RunPredictions("gbm", (("user",),), keep_names=True)
        self.logged: list[dict[str, object]] = []
        self.training = ModelTraining(self.store, self.runs, lambda: self.now)

    def by(self, *child: str, deadline: float = 600.0) -> None:
        """From now on trained by this program."""
        self.training.close()
        self.training = ModelTraining(self.store, self.runs, lambda: self.now, child, deadline)

    def end_jobs(self, count: int) -> Sequence[JobEnd]:
        draw, first = np.random.default_rng(self.store.count()), self.store.count()
        ends = [
            JobEnd(first + at, self.now + at, self.now + at + 0.5, ANN, float(draw.lognormal(5, 1)), HowEnded.BY_ITSELF)
            for at in range(count)
        ]
        self.runs.learn(self.store.add(ends))
        self.now += count
        return ends

    def step(self) -> bool:
        """Whether anything was logged."""
        with capture_logs() as logged:
            self.training.step()
        self.logged += logged
        return bool(logged)

    def wait(self) -> None:
        """Until something is logged."""
        wait_until(self.step, "a line in the log")

    @property
    def pid(self) -> int | None:
        """Of the process of a training; None: there is none."""
        under_way = self.training._under_way
        return None if under_way is None else under_way.process.pid

    @property
    def events(self) -> list[object]:
        return [line["event"] for line in self.logged]

    @property
    def basis(self) -> str:
        return self.runs.of_features([ANN])[0].key


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.training.close()
    found.store.close()


def test_a_model_is_trained_when_enough_has_ended_and_again_after_an_hour_with_new_jobs(site: Site) -> None:
    site.end_jobs(LEAST_JOBS - 1)
    site.step()
    assert site.pid is None
    site.end_jobs(1)
    assert site.basis == "ladder, as gbm has no model yet: user"
    site.wait()
    assert site.events == ["model_trained"]
    assert site.logged[0]["jobs"] == LEAST_JOBS
    assert (site.basis, site.runs.of_features([ANN])[0].samples) == ("a model of all", LEAST_JOBS)
    site.end_jobs(NEW_JOBS - 1)
    site.now += 2 * TRAIN_EVERY
    site.step()
    assert site.pid is None, "too few have ended since"
    site.end_jobs(1)
    site.wait()
    assert site.events == ["model_trained"] * 2
    site.end_jobs(NEW_JOBS)
    site.step()
    assert site.pid is None, "it is less than an hour ago"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('line one'); sys.exit('no memory')", "no memory"),
        ("import sys; sys.exit(3)", "it ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with exit code -9"),
        ("print('Traceback')", "its process did not write a model"),
        ("print('{}')", "a trained model has other parts"),
        ("print('[' * 100000)", "its process did not write a model"),
    ],
)
def test_a_training_that_fails_costs_one_line_and_is_tried_again_after_an_hour(
    site: Site, program: str, said: str
) -> None:
    site.end_jobs(LEAST_JOBS)
    site.by(sys.executable, "-c", program)
    site.wait()
    assert [(line["event"], line["error"]) for line in site.logged] == [("model_not_trained", said)]
    assert site.logged[0]["message"] == "run times are predicted by ladder"
    assert site.basis.startswith("ladder")
    site.now += TRAIN_EVERY / 2
    assert not site.step()
    assert site.pid is None
    site.now += TRAIN_EVERY
    site.wait()
    assert site.events == ["model_not_trained"] * 2


def test_the_model_before_stays_when_a_training_takes_too_long(site: Site) -> None:
    site.end_jobs(LEAST_JOBS)
    site.wait()
    before = site.runs.of_features([ANN])
    site.by(sys.executable, "-c", "import time; time.sleep(10000)", deadline=0.2)
    site.step()
    pid = site.pid
    assert pid is not None
    site.wait()
    assert site.logged[-1] == {
        "event": "model_not_trained",
        "log_level": "warning",
        "error": "it took longer than 0.2 s",
        "message": "run times are predicted by the model before",
    }
    assert not Path(f"/proc/{pid}").exists()
    assert site.runs.of_features([ANN]) == before


def test_a_program_that_cannot_be_run_and_one_that_is_closed(site: Site, tmp_path: Path) -> None:
    site.end_jobs(LEAST_JOBS)
    site.by(str(tmp_path / "none"))
    assert site.step()
    assert site.logged[0]["error"] == f"cannot run {tmp_path / 'none'}: No such file or directory"
    site.by(sys.executable, "-c", "import time; time.sleep(10000)")
    site.step()
    pid = site.pid
    assert pid is not None
    site.training.close()
    assert not Path(f"/proc/{pid}").exists()


def test_what_was_trained_before_somebody_was_forgotten_is_not_used(site: Site) -> None:
    site.end_jobs(LEAST_JOBS)
    site.step()
    pid = site.pid
    assert pid is not None
    site.runs.learn_anew(site.store.all())
    wait_until(lambda: not site.step() and site.pid is None, "the end of the training")
    assert not Path(f"/proc/{pid}").exists()
    assert site.events == []
    assert site.basis.startswith("ladder")
    site.wait()  # at once, not after an hour
    assert site.events == ["model_trained"]


def test_the_child_learns_of_each_job_only_what_had_ended_when_it_started(site: Site) -> None:
    ends = list(site.end_jobs(400))
    assert latest_ends(site.store.path, 100) == ends[300:]
    values, targets = training_set(ends)
    assert values.shape == (400, INPUTS)
    later = [end if at < 200 else end._replace(run=end.run * 7 + 1) for at, end in enumerate(ends)]
    changed_values, changed_targets = training_set(later)
    assert (changed_values[:201] == values[:201]).all()
    assert (changed_values[201:] != values[201:]).any(axis=1).all()
    assert (changed_targets[:200] == targets[:200]).all()


def test_the_daemon_does_not_load_lightgbm() -> None:
    program = "import omfs_daemon.daemon.run_daemon, sys; print('lightgbm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
