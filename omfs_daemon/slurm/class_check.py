"""Check the classes of the configuration against what Slurm knows, and against each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from omfs_daemon.slurm.settings_check import Finding, Level

_SUBJECT = "classes"


class ClassNames(NamedTuple):
    """What a class goes by, as in the configuration; an empty list matches every job."""

    name: str
    partition: Sequence[str] = ()
    qos: Sequence[str] = ()
    account: Sequence[str] = ()


class KnownNames(NamedTuple):
    """What Slurm knows; None: nobody can say, as slurmdbd is away."""

    partition: Collection[str] | None
    qos: Collection[str] | None
    account: Collection[str] | None


def class_findings(classes: Sequence[ClassNames], known: KnownNames) -> list[Finding]:
    """All unknown names, and each class that no job can reach."""
    found = [*_unknown(classes, known), *_unreachable(classes)]
    if classes and not found:
        found.append(Finding(Level.OK, _SUBJECT, f"Slurm knows all names, and all {len(classes)} can match jobs"))
    return found


def _unknown(classes: Sequence[ClassNames], known: KnownNames) -> Iterator[Finding]:
    names: Mapping[str, Collection[str] | None] = known._asdict()
    for job_class in classes:
        for key, given in (("partition", job_class.partition), ("qos", job_class.qos), ("account", job_class.account)):
            there = names[key]
            wrong = [] if there is None else [name for name in given if name not in there]
            if there is None or not wrong:
                continue
            close = [best for name in wrong for best in get_close_matches(name, sorted(there), n=1)]
            hint = f"did you mean {', '.join(dict.fromkeys(close))}? " if close else ""
            what = f"class {job_class.name!r}: {key} = {', '.join(wrong)}: unknown to Slurm"
            there_are = ", ".join(sorted(there)) or "none"
            yield Finding(Level.FAIL, _SUBJECT, what, f"{hint}correct the name; there are: {there_are}")


def _unreachable(classes: Sequence[ClassNames]) -> Iterator[Finding]:
    """The first class that matches a job counts, so a class behind one that matches all of its jobs has none."""
    for number, job_class in enumerate(classes):
        before = next((one for one in classes[:number] if _covers(one, job_class)), None)
        if before is not None:
            matched = "every job" if not any(before[1:]) else "all of its jobs"
            what = f"class {job_class.name!r} has no jobs: {before.name!r}, which is before it, matches {matched}"
            yield Finding(Level.FAIL, _SUBJECT, what, f"move it before {before.name!r}, or remove it")


def _covers(first: ClassNames, second: ClassNames) -> bool:
    """Whether ``first`` matches each job that ``second`` matches."""
    return all(
        not wide or (bool(narrow) and set(narrow) <= set(wide))
        for wide, narrow in zip(first[1:], second[1:], strict=True)
    )
