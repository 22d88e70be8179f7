"""Generations on disk: a crash after any operation leaves a good one; forged and damaged ones are refused."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.store import manifest
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import Busy, Generations
from omfs_daemon.omfs_run.store.manifest import BLOCK, BadManifest
from tests.unit.omfs_run.conftest import opened

FILES = {"a.img": b"first" * 1000, "b_files/c": b"", "b_files/deep/d": b"x"}


class Crash(BaseException):
    """The power fails."""


def fill(directory: Path, contents: dict[str, bytes]) -> Image:
    for name, data in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return Image(list(contents), "tool 1.0", sum(map(len, contents.values())))


def make(store: Generations, computed: float = 1.0, contents: dict[str, bytes] = FILES) -> str:
    place = store.new()
    store.seal(place.name, "fake", fill(Path(place.path), contents), computed, {"argv": ["./a.out"]})
    return place.name


def edit(path: Path, **changes: Any) -> None:
    content = json.loads((path / manifest.NAME).read_text())
    (path / manifest.NAME).write_text(json.dumps(content | changes))


# -- ordinary life ----------------------------------------------------------------------------------
def test_a_generation_is_verified_as_it_was_made(store: Generations, path: Path) -> None:
    name = make(store, 12.5)
    found = store.verify(name)
    assert (found.method, found.image.tool, found.computed, found.argv) == ("fake", "tool 1.0", 12.5, ["./a.out"])
    assert set(found.image.files) == set(FILES)
    assert (path / "good").read_text() == "gen-0001\n"
    assert (path / name).stat().st_mode & 0o777 == 0o700


def test_the_one_before_stays_until_the_newest_was_restarted(store: Generations, path: Path) -> None:
    names = [make(store), make(store), make(store)]
    assert store.candidates() == names[:0:-1]
    store.settle(names[2], [])
    assert store.candidates() == [names[2]]
    assert sorted(each.name for each in path.iterdir()) == [names[2], "good"]


def test_one_that_failed_is_kept_for_inspection_but_never_used_again(store: Generations, path: Path) -> None:
    old, new = make(store), make(store)
    store.settle(old, [new])
    assert store.candidates() == [old]
    assert (path / "failed-0002" / "a.img").exists()
    assert make(store) == "gen-0003"
    assert store.candidates() == ["gen-0003", old]
    store.settle("gen-0003", [])
    assert not (path / "failed-0002").exists()


def test_blocks_are_added_up_each(store: Generations, path: Path) -> None:
    big = os.urandom(1000) * ((2 * BLOCK) // 1000 + 1)
    name = make(store, contents={"big": big})
    described = json.loads((path / name / manifest.NAME).read_text())["files"][0]
    assert (described["size"], len(described["crc32"])) == (len(big), 3)
    assert store.verify(name).image.size == len(big)
    with (path / name / "big").open("r+b") as image:
        image.seek(len(big) - 1)
        image.write(bytes([big[-1] ^ 1]))
    with pytest.raises(BadManifest, match="crc32"):
        store.verify(name)


def test_a_manifest_of_the_format_before_is_verified(store: Generations, path: Path) -> None:
    name = make(store, contents={"a.img": b"state"})
    digest = hashlib.sha256(b"state").hexdigest()
    edit(path / name, format=1, files=[{"name": "a.img", "size": 5, "sha256": [digest]}])
    assert store.verify(name).image.size == 5
    (path / name / "a.img").write_bytes(b"etats")
    with pytest.raises(BadManifest, match="sha256"):
        store.verify(name)


def test_all_is_removed_when_the_program_has_ended_well(store: Generations, path: Path) -> None:
    store.lock(0)
    make(store)
    (path / "scratch-x").mkdir()
    (path / "scratch-x" / "mark").touch()
    store.clear()
    assert not path.exists()


def test_what_is_not_ours_in_the_directory_stays(store: Generations, path: Path) -> None:
    (path / "notes.txt").write_text("mine")
    make(store)
    store.clear()
    assert [each.name for each in path.iterdir()] == ["notes.txt"]


def test_two_runs_never_use_a_directory_at_once(store: Generations, path: Path) -> None:
    assert store.lock(0)
    with pytest.raises(Busy, match="still uses"):
        opened(path).lock(0.01, sleep=lambda _: None)


def test_a_directory_that_was_exchanged_is_not_used(store: Generations, path: Path) -> None:
    make(store)
    path.rename(path.with_name("moved"))
    path.mkdir()
    with pytest.raises(OSError, match="another directory"):
        store.new()
    assert list(path.iterdir()) == []


def test_removing_follows_no_link(store: Generations, path: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    name = make(store)
    (path / name / "out").symlink_to(tmp_path / "precious")
    store.discard(name)
    assert (tmp_path / "precious" / "file").read_text() == "kept"


def test_progress_reports_how_far_a_run_came(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    now = [0.0]
    progress = ComputedTime(directory, clock=lambda: now[0])
    assert progress.reached() == 0.0
    progress.begin(100.0)
    now[0] = 31.0
    assert progress.seconds() == 131.0
    progress.record()
    began = json.loads((path / "run").read_text())["began"]
    os.utime(path / "run", (began + 31, began + 31))
    assert ComputedTime(directory).reached() == pytest.approx(131.0)
    (path / "run").write_text("[]")
    assert ComputedTime(directory).reached() == 0.0


# -- power failures ---------------------------------------------------------------------------------
OPERATIONS = ("mkdir", "replace", "rename", "unlink", "rmdir", "fsync")


@pytest.fixture
def crash_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """Let the n-th operation on files be the last; returns what was done."""
    done: list[str] = []

    def arm(limit: int) -> list[str]:
        done.clear()
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, counted(name, getattr(os, name), limit))
        return done

    def counted(name: str, real: Callable[..., Any], limit: int) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) >= limit:
                raise Crash
            done.append(name)
            return real(*arguments, **options)

        return call

    yield arm
    monkeypatch.undo()


def crash_everywhere(
    tmp_path: Path, crash_after: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]
) -> Iterator[tuple[Path, bool]]:
    """Do ``work`` on a fresh store with two generations, crashing after 0, 1, 2, … operations until it gets through."""
    for limit in range(200):
        path = tmp_path / str(limit)
        path.mkdir(mode=0o700)
        store = opened(path)
        make(store, 1.0, {"a": b"one"})
        make(store, 2.0, {"a": b"two"})
        crash_after(limit)
        try:
            work(store)
            through = True
        except Crash:
            through = False
        finally:
            monkeypatch.undo()
        yield path, through
        if through:
            return
    raise AssertionError("never got through")


def test_a_crash_while_a_generation_is_made_loses_none(
    tmp_path: Path, crash_after: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0
    for path, through in crash_everywhere(
        tmp_path, crash_after, monkeypatch, lambda store: make(store, 3.0, {"a": b"three"})
    ):
        rounds += 1
        best = next(iter(opened(path).candidates()))
        found = opened(path).verify(best)
        contents = (path / best / "a").read_bytes()
        assert (found.computed, contents) in [(2.0, b"two"), (3.0, b"three")]
        if through:
            assert found.computed == 3.0
        assert make(opened(path), 4.0) == opened(path).candidates()[0]  # and the store still works
    assert rounds > 8


@pytest.mark.parametrize(("used", "failed"), [("gen-0002", []), ("gen-0001", ["gen-0002"])])
def test_a_crash_while_older_ones_are_removed_leaves_the_one_that_was_used(
    tmp_path: Path,
    crash_after: Callable[[int], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    used: str,
    failed: list[str],
) -> None:
    for path, through in crash_everywhere(tmp_path, crash_after, monkeypatch, lambda store: store.settle(used, failed)):
        store = opened(path)
        assert used in store.candidates()
        usable = [name for name in store.candidates() if (path / name).exists()]
        assert [store.verify(name).image.files for name in usable] == [["a"]] * len(usable)
        if through:
            assert store.candidates() == [used]


def test_files_and_directories_are_on_disk_before_they_are_called_good(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(path)
    place = store.new()
    image = fill(Path(place.path), FILES)
    synced: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        real_sync(descriptor)

    def replace(source: str, target: str, **options: Any) -> None:
        if target == "good":
            wanted = {place.path, str(path), *(f"{place.path}/{name}" for name in FILES)}
            wanted |= {f"{place.path}/b_files", f"{place.path}/b_files/deep", f"{place.path}/{manifest.NAME}.new"}
            assert wanted | {f"{path}/good.new"} <= set(synced)
        real_replace(source, target, **options)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    store.seal(place.name, "fake", image, 1.0, {})
    assert synced[-1] == str(path)


# -- damage and forgery -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format": 3}, "not of format 1 or 2"),
        ({"format": True}, "not of format 1 or 2"),
        ({"generation": "gen-0009"}, "another generation"),
        ({"method": 7}, "must be strings"),
        ({"computed": -1}, "computed"),
        ({"computed": float("nan")}, "computed"),
        ({"computed": True}, "computed"),
        ({"files": {}}, "listed"),
        ({"block": 1}, "blocks"),
        ({"files": [{"name": "../a", "size": 0, "crc32": []}]}, "plain and relative"),
        ({"files": [{"name": "/etc/passwd", "size": 0, "crc32": []}]}, "plain and relative"),
        ({"files": [{"name": "x/../../a", "size": 0, "crc32": []}]}, "plain and relative"),
        ({"files": [{"name": "a\n", "size": 0, "crc32": []}]}, "plain and relative"),
        ({"files": [{"name": "manifest.json", "size": 0, "crc32": []}]}, "plain and relative"),
        ({"files": [{"name": "a.img", "size": -5, "crc32": []}]}, "no size"),
        ({"files": [{"name": "a.img", "size": 5000}]}, "no crc32"),
        ({"files": [{"name": "a.img", "size": 5000, "crc32": []}] * 2}, "twice"),
        ({"files": [{"name": "a.img", "size": 5000, "crc32": ["00"]}]}, "crc32"),
        ({"files": [{"name": "none", "size": 0, "crc32": []}]}, "No such file"),
        ({"files": [7]}, "plain and relative"),
    ],
)
def test_a_forged_manifest_is_refused(store: Generations, path: Path, changes: dict[str, Any], text: str) -> None:
    name = make(store)
    edit(path / name, **changes)
    with pytest.raises(BadManifest, match=text):
        store.verify(name)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100000, "\x00"])
def test_a_manifest_that_is_none_is_refused(store: Generations, path: Path, text: str) -> None:
    name = make(store)
    (path / name / manifest.NAME).write_text(text)
    with pytest.raises(BadManifest):
        store.verify(name)


def test_a_truncated_image_is_refused_by_its_size(store: Generations, path: Path) -> None:
    name = make(store)
    os.truncate(path / name / "a.img", 10)
    with pytest.raises(BadManifest, match="10 bytes instead of 5000"):
        store.verify(name)


@pytest.mark.parametrize("what", ["link", "folder", "fifo", "other"])
def test_an_image_that_is_no_plain_file_of_ours_is_refused(
    store: Generations, path: Path, tmp_path: Path, what: str
) -> None:
    name = make(store)
    image = path / name / "a.img"
    (tmp_path / "copy").write_bytes(image.read_bytes())
    if what == "other":
        os.chown(image, 65534, 65534)
    else:
        image.unlink()
    if what == "link":
        image.symlink_to(tmp_path / "copy")
    elif what == "folder":
        image.mkdir()
    elif what == "fifo":
        os.mkfifo(image)
    with pytest.raises(BadManifest):
        store.verify(name)


def test_a_folder_of_an_image_that_is_a_link_is_refused(store: Generations, path: Path, tmp_path: Path) -> None:
    name = make(store)
    (path / name / "b_files").rename(tmp_path / "elsewhere")
    (path / name / "b_files").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadManifest):
        store.verify(name)


@pytest.mark.parametrize(
    "text", ["../../etc\n", "gen-0001/..\n", "/gen-0001\n", "lock\n", "gen-x", "\udcff", "x" * 9999]
)
def test_a_forged_list_of_the_good_names_nothing_outside(store: Generations, path: Path, text: str) -> None:
    name = make(store)
    (path / "good").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert store.candidates() == [name]  # found by its manifest


def test_a_driver_that_names_a_file_outside_is_not_followed(store: Generations, path: Path) -> None:
    place = store.new()
    (path / "outside").write_text("x")
    with pytest.raises(BadManifest, match="plain and relative"):
        store.seal(place.name, "fake", Image(["../outside"], "tool", 1), 1.0, {})
    assert store.candidates() == []
