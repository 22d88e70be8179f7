"""The options of a batch script, as sbatch reads them (sbatch(1)). The file may be anything: it is read, never run."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from omfs_daemon.daemon.api.operations import LONGEST_WORD, MOST_WORDS
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.batch_words import OptionWord, count_of_options

_MAGIC = b"#SBATCH"
_LONGEST_LINE = 65536
_MOST_BYTES = 4 << 20
"""What Slurm takes of a script, if slurm.conf says nothing else (max_script_size)."""

_VARIABLES: Mapping[str, str] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SLURM_CLUSTERS": "clusters",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_TIMELIMIT": "time",
}
"""Environment variables that stand for options; SBATCH_EXCLUSIVE beside them."""
_SHARED = ("user", "mcs")


class BatchCommand(NamedTuple):
    """A command line of sbatch without its first word: options, then the script and its arguments; and all options
    that count, in the order in which later ones win."""

    options: tuple[str, ...]
    rest: tuple[str, ...]
    words: tuple[OptionWord, ...]

    def typed(self, options: Sequence[str], conf: str) -> str:
        """The line to type, with more options, and another slurm.conf ("": the present one)."""
        prefix = ["env", f"SLURM_CONF={conf}"] if conf else []
        return shlex.join([*prefix, "sbatch", *self.options, *options, *self.rest])


def batch_command(words: Sequence[str], environment: Mapping[str, str]) -> BatchCommand:
    """Of what follows ``omfs where``: options of sbatch, and a script with arguments, or options alone.

    ConfigError where sbatch would refuse the script, or says where an option cannot be read.
    """
    typed = [OptionWord("the command line", word) for word in words]
    count = count_of_options(typed)
    rest = tuple(words[count:])
    if rest[:1] == ("--",):
        rest = rest[1:]
    counting = list[OptionWord]()
    if rest:
        path = _found(rest[0])
        counting.append(OptionWord(rest[0], f"--job-name={path.name}"))
        counting += script_words(path)
    elif not words:
        raise ConfigError("a script is needed, or options of sbatch after --")
    elif any(word.split("=")[0] == "--wrap" for word in words):
        counting.append(OptionWord("--wrap", "--job-name=wrap"))
    counting += _of_environment(environment)
    counting += typed[:count]
    if len(counting) > MOST_WORDS:
        raise ConfigError(f"the command line: more than {MOST_WORDS} words of options")
    if long := [word for word in counting if len(word.text) > LONGEST_WORD]:
        raise ConfigError(f"{long[0].origin}: a word of more than {LONGEST_WORD:,} characters")
    counting = [OptionWord(word.origin[-LONGEST_WORD:], word.text) for word in counting]
    return BatchCommand(tuple(words[:count]), rest, tuple(counting))


def script_words(path: Path) -> list[OptionWord]:
    """The words of its ``#SBATCH`` lines, up to the first line that is no comment."""
    found = list[OptionWord]()
    with _opened(path) as file:
        for number, line in _head(file, path):
            if line.startswith(_MAGIC):
                text = line[len(_MAGIC) :].decode("utf-8", errors="replace")
                try:
                    words = shlex.split(text, comments=True)
                except ValueError as error:
                    raise ConfigError(f"{path}, line {number}: {str(error).lower()}") from None
                found += [OptionWord(f"{path}, line {number}", word) for word in words]
            if len(found) > MOST_WORDS:
                raise ConfigError(f"{path}, line {number}: more than {MOST_WORDS} words of options")
    return found


def _found(name: str) -> Path:
    """A script without a directory may be in PATH."""
    path = Path(name)
    is_here = os.path.exists(name)  # noqa: PTH110 - that of Path raises for a name that is too long
    if "/" not in name and not is_here and (program := shutil.which(name)) is not None:
        return Path(program)
    return path


def _opened(path: Path) -> BinaryIO:
    """Without waiting for the writer of a pipe."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise ConfigError(f"{path}: must be a file, as a batch script is")
    return os.fdopen(opened, "rb")


def _head(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """The comment lines from the second line on, with their numbers; ConfigError for what sbatch refuses."""
    read, number = 0, 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        read += len(line)
        if number == 1 and not line.startswith(b"#!"):
            raise ConfigError(f"{path}: must be a batch script, which begins with #! and an interpreter")
        if line.endswith(b"\r\n"):
            raise ConfigError(f"{path}, line {number}: ends as in DOS (\\r\\n), which sbatch refuses")
        if b"\0" in line:
            raise ConfigError(f"{path}, line {number}: has a NUL character, which sbatch refuses")
        text = line.strip()
        if text and not text.startswith(b"#"):
            return
        if len(line) == _LONGEST_LINE or read > _MOST_BYTES:
            raise ConfigError(f"{path}, line {number}: too long: a line has at most {_LONGEST_LINE} bytes, all 4 MiB")
        if number > 1:
            yield number, line
    if not number:
        raise ConfigError(f"{path}: is empty")


def _of_environment(environment: Mapping[str, str]) -> Iterator[OptionWord]:
    for variable, name in _VARIABLES.items():
        if variable in environment:
            yield OptionWord(variable, f"--{name}={environment[variable]}")
    shared = environment.get("SBATCH_EXCLUSIVE")
    if shared is not None:
        yield OptionWord("SBATCH_EXCLUSIVE", f"--exclusive={shared}" if shared in _SHARED else "--exclusive")
