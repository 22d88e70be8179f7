"""What somebody puts into a checkpoint directory: each file costs one clear line, and nothing outside is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.store import files
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.omfs_run.store.manifest import BadManifest
from tests.support.daemons import ROOT
from tests.support.waiting import LIMIT
from tests.unit.omfs_run.conftest import opened
from tests.unit.omfs_run.test_checkpoint_store import edit, make


@pytest.fixture
def nothing_hangs() -> Iterator[None]:
    def end(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(int(LIMIT))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["fifo", "hard link", "link"])
@pytest.mark.parametrize("name", ["good", "run"])
@pytest.mark.usefixtures("nothing_hangs")
def test_k19_what_lies_in_the_place_of_a_new_file_is_neither_waited_for_nor_written_to(
    path: Path, tmp_path: Path, kind: str, name: str
) -> None:
    (tmp_path / "thesis").write_text("years of work")
    planted = path / f"{name}.new"
    if kind == "fifo":
        os.mkfifo(planted)
    elif kind == "link":
        planted.symlink_to(tmp_path / "thesis")
    else:
        planted.hardlink_to(tmp_path / "thesis")
    store = opened(path)
    generation = make(store)
    computed = ComputedTime(os.open(path, os.O_RDONLY))
    computed.begin(7.0)
    assert store.candidates() == [generation]
    assert (path / name).is_file() and computed.reached() >= 7.0
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_k20_directories_in_each_other_end_in_one_line(store: Generations, path: Path) -> None:
    (path / "scratch-x" / "/".join(["x"] * 100)).mkdir(parents=True)
    with pytest.raises(OSError, match="more than 64 directories in each other"):
        store.remove_scratch()


def test_k20_nor_do_those_that_the_program_made_change_its_exit_code(path: Path) -> None:
    begin = "import os; os.chdir(os.path.dirname(os.environ['OMFS_MARK']))"
    deep = f"{begin}; [(os.mkdir('x'), os.chdir('x')) for _ in range(1500)]"
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.geteuid()), "PATH": "/nonexistent"}
    words = [sys.executable, "-m", "omfs_daemon.omfs_run.main", "--method", "application", "--dir", str(path)]
    try:
        done = subprocess.run(
            [*words, sys.executable, "-c", deep + "; os._exit(42)"],
            env={**os.environ, **job},
            cwd=ROOT,
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    finally:
        subprocess.run(["rm", "-rf", path], timeout=LIMIT, check=True)  # pytest's own way does not get so deep
    assert (done.returncode, b"Traceback" in done.stderr) == (42, False), done.stderr[-2000:]


@pytest.mark.usefixtures("nothing_hangs")
def test_k21_an_image_of_nothing_is_not_read_for_years(store: Generations, path: Path) -> None:
    name = make(store)
    image, huge = path / name / "a.img", 1 << 42
    with suppress(OSError):  # where the file system has no such files, they need no test
        os.truncate(image, huge)
        edit(path / name, files=[{"name": "a.img", "size": huge, "crc32": ["00000000"]}])
    with pytest.raises(BadManifest, match=r"a\.img: "):
        store.verify(name)


def test_k22_a_generation_with_a_newline_in_its_name_is_none(store: Generations, path: Path) -> None:
    name = make(store)
    (path / name).rename(path / f"{name}\n")
    edit(path / f"{name}\n", generation=f"{name}\n")
    (path / "good").unlink()
    assert store.candidates() == []


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e400", "1e300"])
@pytest.mark.parametrize("name", ["computed", "began"])
def test_k22_a_forged_time_of_computing_counts_as_none(path: Path, name: str, number: str) -> None:
    numbers = {"computed": "1", "began": "1", name: number}
    (path / "run").write_text("{" + ", ".join(f'"{each}": {value}' for each, value in numbers.items()) + "}")
    reached = ComputedTime(os.open(path, os.O_RDONLY)).reached()
    assert 0 <= reached < 1e12


def test_a_file_in_the_place_of_a_directory_is_an_error_that_names_it(path: Path) -> None:
    (path / "scratch-x").touch()
    with pytest.raises(OSError, match="scratch-x"):
        files.remove_tree(os.open(path, os.O_RDONLY), "scratch-x")
