"""Where checkpoints may lie: nothing that another user could have put in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.private_directory import BadDirectory, open_private

OTHER = 65534


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Below /tmp, which is sticky; with a directory ``open`` in which anybody may do anything."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "mine").mkdir(mode=0o700)
    return tmp_path


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def opens(path: Path | str) -> str:
    before = open_files()
    try:
        descriptor, real = open_private(str(path), os.geteuid())
        assert os.path.samestat(os.fstat(descriptor), Path(real).stat())
        os.close(descriptor)
        return real
    finally:
        assert open_files() == before


def test_it_is_made_with_all_above_it_for_us_alone(base: Path) -> None:
    assert opens(base / "new" / "deep") == str(base / "new" / "deep")
    assert (base / "new").stat().st_mode & 0o777 == 0o700
    assert opens(base / "new" / "deep") == str(base / "new" / "deep")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("relative/x", "not an absolute path"),
        ("", "not an absolute path"),
        ("/var/../etc", "not allowed"),
        ("/var/a\nb", "not allowed"),
        ("/var/a\x1b[2J", "not allowed"),
        ("/var/a\u202eb", "not allowed"),
        ("/var/a\x00b", "not allowed"),
        ("/proc/none/x", "No such file"),
    ],
)
def test_other_paths_are_refused(path: str, text: str) -> None:
    with pytest.raises(BadDirectory, match=text):
        opens(path)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o720])
def test_a_directory_in_which_others_may_write_is_refused(base: Path, mode: int) -> None:
    (base / "mine").chmod(mode)
    with pytest.raises(BadDirectory, match="writable by nobody else"):
        opens(base / "mine")


def test_a_directory_of_another_user_is_refused(base: Path) -> None:
    os.chown(base / "mine", OTHER, OTHER)
    with pytest.raises(BadDirectory, match="owned by uid 65534"):
        opens(base / "mine")


def test_a_file_is_refused(base: Path) -> None:
    (base / "file").touch()
    with pytest.raises(BadDirectory, match="Not a directory"):
        opens(base / "file" / "x")


def test_links_of_ours_are_followed_from_safe_places(base: Path) -> None:
    (base / "absolute").symlink_to(base / "mine")
    (base / "mine" / "up").symlink_to("../mine/./inner")
    assert opens(base / "absolute" / "up" / "x") == str(base / "mine" / "inner" / "x")


def test_a_link_of_another_user_is_not_followed(base: Path) -> None:
    (base / "link").symlink_to(base / "mine")
    os.lchown(base / "link", OTHER, OTHER)
    with pytest.raises(BadDirectory, match="of another user"):
        opens(base / "link")


@pytest.mark.parametrize("below", ["open", "open/inner"])
def test_no_link_is_followed_below_a_directory_in_which_anybody_may_exchange_it(base: Path, below: str) -> None:
    (base / below).mkdir(exist_ok=True)
    (base / below / "link").symlink_to(base / "mine")
    with pytest.raises(BadDirectory, match="anybody may write"):
        opens(base / below / "link" / "x")
    (base / "open").chmod(0o1777)
    assert opens(base / below / "link" / "x") == str(base / "mine" / "x")


@pytest.mark.parametrize("below", ["open/x", "open/inner/x"])
def test_nothing_lies_below_a_directory_in_which_anybody_may_exchange_it(base: Path, below: str) -> None:
    """A checkpoint that another user slips in between our check and the tool's would be their program, run as us."""
    (base / below).mkdir(parents=True, mode=0o700)
    with pytest.raises(BadDirectory, match="anybody may write"):
        opens(base / below)
    (base / "open").chmod(0o1777)
    assert opens(base / below) == str(base / below)


def test_links_in_a_circle_end(base: Path) -> None:
    (base / "a").symlink_to(base / "b")
    (base / "b").symlink_to(base / "a")
    with pytest.raises(BadDirectory, match="too many"):
        opens(base / "a")
