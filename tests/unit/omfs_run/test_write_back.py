"""What is begun early: writing out while a tool still writes, verifying while CRIU is tried out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omfs_daemon.omfs_run import write_back as early
from omfs_daemon.omfs_run.drivers.driver import Image
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.omfs_run.store.manifest import BadManifest
from tests.support.waiting import wait_until


def test_what_grows_is_written_out_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(early, "_EVERY", 0.001)
    monkeypatch.setattr(early, "_STEP", 1000)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    (tmp_path / "small").write_bytes(b"x" * 999)
    (tmp_path / "link").symlink_to("image")
    with early.WriteBack(str(tmp_path)), (tmp_path / "image").open("wb", buffering=0) as image:
        for size in (1000, 2500):
            image.write(b"x" * (size - image.tell()))
            wait_until(lambda size=size: synced[-1:] == [size], "the file to be written out")
    assert synced == [1000, 2500]


def test_a_directory_that_goes_away_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_EVERY", 0.001)
    asked: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda path: asked.append(path) or _gone(path))
    with early.WriteBack(str(tmp_path / "gone")):
        wait_until(lambda: len(asked) > 3, "it to look")


def _gone(path: str) -> list[str]:
    raise FileNotFoundError(2, "gone", path)


@pytest.fixture
def store(tmp_path: Path) -> Generations:
    return Generations(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY), str(tmp_path))


def sealed(store: Generations, content: bytes) -> str:
    place = store.new()
    (Path(place.path) / "image").write_bytes(content)
    store.seal(place.name, "criu", Image(["image"], "criu 4.2.1", len(content)), 1.0, {})
    return place.name


def test_the_best_candidate_is_verified_ahead_and_the_result_counts_once(store: Generations) -> None:
    first, best = sealed(store, b"first"), sealed(store, b"best")
    store.verify_ahead()
    assert store.verify(best).image.files == ["image"]
    (Path(store.path) / best / "image").write_bytes(b"worst"[:4])
    with pytest.raises(BadManifest):
        store.verify(best)
    store.verify_ahead()
    with pytest.raises(BadManifest):
        store.verify(best)
    store.verify_ahead()
    assert store.verify(first).image.size == 5


def test_without_a_candidate_nothing_is_begun(store: Generations) -> None:
    store.verify_ahead()
    assert store.candidates() == []
