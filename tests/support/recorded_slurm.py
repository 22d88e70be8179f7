"""What Slurm's commands answered, kept in files, and a runner that answers from there.

A file holds one command: its arguments, the environment that says what to print, its output and its exit code. Of which
time accounting was asked is not kept: the same question of another time has the same answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from omfs_daemon.slurm.commands.run_command import CommandOutput, failure, run_command

FIXTURES = Path(__file__).parents[1] / "fixtures" / "slurm"
EPOCH = 1_800_000_000
"""The second in which the cluster of a recording began to work."""
SEPARATOR = "<|>"
"""Stands in the files for the secret of the call that ends each field of squeue or sacct."""

_SECRET = re.compile(r"JobID:([^,]+),|%A(.+?)%x|--delimiter=(\S+)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_IDS = "ids.json"


@dataclass(frozen=True)
class Record:
    """One command and its answer; lines as they came, without their newlines."""

    arguments: list[str]
    variables: dict[str, str]
    code: int
    stdout: list[str]
    stderr: list[str]

    @property
    def question(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        return tuple(self.arguments), tuple(sorted(self.variables.items()))

    @property
    def file_name(self) -> str:
        words = [word for word in self.arguments if re.fullmatch(r"[A-Za-z]+", word)]
        return "-".join(words[:3])

    def output(self, secret: str) -> CommandOutput:
        stdout, stderr = "\n".join(self.stdout), "\n".join(self.stderr)
        return CommandOutput(stdout.replace(SEPARATOR, secret) if secret else stdout, stderr, self.code)


class Recorder:
    """Runs commands as ``prefix`` says (as another user, say) and keeps what they answered, made neutral."""

    def __init__(self, neutral: Callable[[str], str], prefix: Sequence[str] = ()) -> None:
        self.records: list[Record] = []
        self._neutral = neutral
        self._prefix = prefix

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        output = run_command([*self._prefix, *arguments], timeout=timeout, conf=conf, check=False, variables=variables)
        secret, words, plain = _plain(arguments, variables)
        stdout = output.stdout.replace(secret, SEPARATOR) if secret else output.stdout
        lines = [self._neutral(text).split("\n") for text in (stdout, output.stderr)]
        self.records.append(Record(words, plain, output.code, *lines))
        return _checked(arguments, output, check)


class NotRecordedError(AssertionError):
    """Nobody has recorded an answer to this question, or it has been given."""


class Replay:
    """Answers what was recorded, from the place ``since`` on, in turn where the same was asked more than once; else
    NotRecordedError."""

    def __init__(self, directory: Path, since: int = 0) -> None:
        self._left = read(directory)[since:]

    def put(self, place: int, stdout: str) -> None:
        """In place of what the record there printed, counted from ``since``."""
        self._left[place] = replace(self._left[place], stdout=stdout.split("\n"), code=0)

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        secret, words, plain = _plain(arguments, variables)
        asked = tuple(words), tuple(sorted(plain.items()))
        found = next((record for record in self._left if record.question == asked), None)
        if found is None:
            raise NotRecordedError(f"not recorded (any more): {asked}")
        self._left.remove(found)
        return _checked(arguments, found.output(secret), check)

    @property
    def left(self) -> list[Record]:
        """What nobody has asked for."""
        return list(self._left)


def write(directory: Path, records: Sequence[Record], ids: Mapping[str, int]) -> None:
    """Write the records and the ids of the jobs in place of what was there."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.json"):
        old.unlink()
    for number, record in enumerate(records, start=1):
        _dump(directory / f"{number:02}-{record.file_name}.json", asdict(record))
    _dump(directory / _IDS, ids)


def read(directory: Path) -> list[Record]:
    """The records of a scenario in order."""
    return list(_read(directory))


@cache
def _read(directory: Path) -> tuple[Record, ...]:
    paths = sorted(path for path in directory.glob("*.json") if path.name != _IDS)
    return tuple(Record(**json.loads(path.read_text())) for path in paths)


def read_ids(directory: Path) -> dict[str, int]:
    """The jobs of a scenario by name."""
    ids: dict[str, int] = json.loads((directory / _IDS).read_text())
    return ids


def _dump(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=True) + "\n")


def _plain(arguments: Sequence[str], variables: Mapping[str, str] | None) -> tuple[str, list[str], dict[str, str]]:
    """The secret of a call, and the call without it and without the times that it asks for."""
    words, values = [_TIME.sub("<time>", word) for word in arguments], dict(variables or {})
    match = _SECRET.search(" ".join((*words, *values.values())))
    if match is None:
        return "", words, values
    secret = match[1] or match[2] or match[3]
    words = [word.replace(secret, SEPARATOR) for word in words]
    return secret, words, {name: value.replace(secret, SEPARATOR) for name, value in values.items()}


def _checked(arguments: Sequence[str], output: CommandOutput, check: bool) -> CommandOutput:
    if check and output.code != 0:
        raise failure(arguments, output)
    return output
