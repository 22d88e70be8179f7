"""The options of a batch script that may be any file, and the line to type."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from omfs_daemon.cli.batch_script import batch_command, script_words
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.batch_options import batch_options

SCRIPT = """\
#!/bin/bash -l
# a comment
#SBATCH --job-name="my job" -n 4   # of four tasks
   # indented
#SBATCH --comment='a # b'

#SBATCH -t 10
echo "$HOME" > $(date)
#SBATCH -n 99
"""


def texts(path: Path) -> list[str]:
    return [word.text for word in script_words(path)]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


def test_directives_up_to_the_first_command(script: Path) -> None:
    assert texts(script) == ["--job-name=my job", "-n", "4", "--comment=a # b", "-t", "10"]
    assert script_words(script)[-1].origin == f"{script}, line 7"


def test_options_win_over_the_environment_and_that_over_the_script(script: Path) -> None:
    environment = {"SBATCH_TIMELIMIT": "20", "SBATCH_QOS": "high", "SLURM_CLUSTERS": "a", "SBATCH_CLUSTERS": "b"}
    options = batch_options(batch_command(["-q", "low", str(script), "-n7"], environment).words)
    assert (options.limit, options.qos, options.clusters, options.tasks) == (1200, "low", ("b",), 4)
    assert options.name == "my job"
    shared = batch_options(batch_command([str(script)], {"SBATCH_EXCLUSIVE": "1"}).words)
    assert shared.exclusive


def test_the_name_is_that_of_the_script_if_nothing_else_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run_017.sh"
    path.write_text("#!/bin/sh\n")
    assert batch_options(batch_command([str(path)], {}).words).name == "run_017.sh"
    assert batch_options(batch_command(["--wrap=sleep 5"], {}).words).name == "wrap"
    assert batch_options(batch_command(["-n2"], {}).words).name == ""


def test_the_line_to_type_is_safe_to_paste(tmp_path: Path) -> None:
    path = tmp_path / "$(touch hacked); 'x'.sh"
    path.write_text("#!/bin/sh\n")
    command = batch_command(["-n2", "--", str(path), "a b"], {})
    line = command.typed(["-M", "b", "-p", "main"], "/etc/slurm b.conf")
    words = ["env", "SLURM_CONF=/etc/slurm b.conf", "sbatch", "-n2", "-M", "b", "-p", "main", str(path), "a b"]
    assert shlex.split(line) == words


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "is empty"),
        (b"#SBATCH -n4\n", "must be a batch script, which begins with #!"),
        (b"\x7fELF\0\0", "must be a batch script"),
        (b"#!/bin/sh\r\n#SBATCH -n4\r\n", "line 1: ends as in DOS"),
        (b"#!/bin/sh\n#SBATCH \0-n4\n", "line 2: has a NUL character"),
        (b"#!/bin/sh\n#SBATCH --comment='open\n", "line 2: no closing quotation"),
        (b"#!/bin/sh\n#SBATCH " + b"x" * 70_000, "line 2: too long"),
        (b"#!/bin/sh\n" + b"#\n" * (2 << 20), "too long"),
        (b"#!/bin/sh\n#SBATCH " + b"-Q " * 1100, "more than 1000 words"),
        (b"#!/bin/sh\n#SBATCH --comment=" + b"x" * 11_000, "a word of more than 10,000 characters"),
    ],
    ids=range(10),
)
def test_what_sbatch_refuses_is_one_line(tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        batch_command([str(path)], {})
    assert error in str(raised.value)
    assert str(raised.value).startswith(str(path))


def test_bytes_that_are_no_text_are_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(b"#!/bin/sh\n#SBATCH --job-name=\xff\xfe\x1b[2J -n3\necho \xff\n")
    assert texts(path) == ["--job-name=\ufffd\ufffd\x1b[2J", "-n3"]


def test_only_files_are_read_and_nothing_waits(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="must be a file"):
            script_words(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        script_words(tmp_path / "none")
    for name, error in (("a\0b", "embedded null"), ("x" * 5000, "File name too long")):
        with pytest.raises(ConfigError, match=f"cannot be read: {error}"):
            batch_command([name], {})


def test_a_script_is_sought_as_sbatch_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "job"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n#SBATCH -n7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.chdir(tmp_path)
    assert batch_options(batch_command(["job"], {}).words).tasks == 7
    (tmp_path / "job").write_text("#!/bin/sh\n#SBATCH -n8\n")
    assert batch_options(batch_command(["job"], {}).words).tasks == 8


def test_a_script_or_options_are_needed() -> None:
    with pytest.raises(ConfigError, match="a script is needed"):
        batch_command([], {})
