"""References of jobs, as Slurm's commands take them: ``7``, ``3_1`` for an array task, ``3_[4-5,9]`` for several.

squeue prints steps (``0-20:2``) that scontrol does not take back, so references never contain any. The tasks of an
irregular array make a reference of hundreds of kilobytes: orders are split, and history and log get a brief form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

_BRIEF = 64  # as many characters of a task list as squeue prints (squeue(1), SLURM_BITSTR_LEN)
_MORE = "..."
_ARRAY = re.compile(r"(\d+)_\[?([\d,:%.-]+)\]?", re.ASCII)
_MAX_ARRAY_SIZE = 4_000_001  # slurm.conf(5)
_ASKED = re.compile(
    r"(?P<one>[0-9]{1,10}(?:[_+][0-9]{1,10})?)|(?P<array>[0-9]{1,10})_\[(?P<first>[0-9]{1,10})[0-9,:%.\-]*\]"
)
_RANGE = re.compile(r"(?P<first>\d{1,7})(?:-(?P<last>\d{1,7})(?::(?P<step>[1-9]\d{0,6}))?)?", re.ASCII)


def fold_tasks(task_ids: Iterable[int]) -> str:
    """``1-3,5`` for the tasks 1, 2, 3, 5."""
    runs = [
        [task for _, task in group]
        for _, group in groupby(enumerate(sorted(task_ids)), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def tasks_ref(array_id: int, task_ids: Iterable[int]) -> str:
    """The reference of these tasks of an array; there must be at least one."""
    listed = fold_tasks(task_ids)
    return f"{array_id}_{listed}" if listed.isdecimal() else f"{array_id}_[{listed}]"


def rest_of(array_id: int, task_ids: Iterable[int], refs: Iterable[str]) -> str:
    """The reference of the tasks of an array that none of these references names; "" if there are none."""
    named: set[int] = set()
    for ref in refs:
        named |= task_ids_of(ref.partition("_")[2].strip("[]"))
    rest = [task for task in task_ids if task not in named]
    return tasks_ref(array_id, rest) if rest else ""


def without_task(ref: str, task: str) -> str:
    """The reference of the tasks that ``ref`` names, without this one; "" if there are no others."""
    if ref == task or not share_tasks(ref, task):
        return "" if ref == task else ref
    array, _, listed = ref.partition("_")
    return rest_of(int(array), task_ids_of(listed.strip("[]")), [task])


def first_task(ref: str) -> str:
    """``3_4`` for the list ``3_[4-5,9]``; any other reference as it is."""
    array, _, listed = ref.partition("_[")
    return f"{array}_{re.split('[],-]', listed, maxsplit=1)[0]}" if listed else ref


def brief_ref(ref: str) -> str:
    """The reference for people and files: a long list of tasks ends as in squeue, ``3_[1,3,5,...]``."""
    if len(ref) <= _BRIEF:
        return ref
    return f"{ref[:_BRIEF].rpartition(',')[0]},{_MORE}]"


def split_ref(ref: str, most: int) -> list[str]:
    """The same tasks in references of at most ``most`` characters; a reference that is no list stays as it is."""
    if len(ref) <= most:
        return [ref]
    array, _, listed = ref.removesuffix("]").partition("_[")
    ends, room = [0], most - len(array) - len("_[]")
    while len(listed) - ends[-1] > room:
        ends.append(listed.rindex(",", ends[-1], ends[-1] + room + 1) + 1)
    return [f"{array}_[{listed[begin:end].rstrip(',')}]" for begin, end in pairwise([*ends, len(listed)])]


def lists_of(refs: Iterable[str], number: int, size: int) -> Iterator[list[str]]:
    """The references in lists of at most ``number`` and, with a comma each, ``size`` characters or one reference."""
    one: list[str] = []
    length = 0
    for ref in refs:
        if one and (len(one) == number or length + len(ref) >= size):
            yield one
            one, length = [], 0
        one.append(ref)
        length += len(ref) + 1
    if one:
        yield one


def share_tasks(one: str, other: str) -> bool:
    """Whether two references name the same job, or a task in common; a brief one may name any task of its array."""
    if one == other:
        return True
    mine, theirs = _ARRAY.fullmatch(one), _ARRAY.fullmatch(other)
    if mine is None or theirs is None or mine[1] != theirs[1]:
        return False
    if _MORE in mine[2] or _MORE in theirs[2]:
        return True
    try:
        return not task_ids_of(mine[2]).isdisjoint(task_ids_of(theirs[2]))
    except ValueError:
        return False


def asked_ref(text: str) -> str | None:
    """The reference that a user has typed: a job, a task, a part of a heterogeneous job, or of a list of tasks the
    first one (a list as long as they like is not expanded); None for anything else."""
    found = _ASKED.fullmatch(text)
    return None if found is None else found["one"] or f"{found['array']}_{found['first']}"


def asked_tasks(text: str) -> tuple[int, list[range]] | None:
    """The array and its tasks in a list that a user has typed, not expanded; None for anything else. ValueError for a
    list that is cut off, as squeue prints a long one, or else is none."""
    found = _ASKED.fullmatch(text)
    if found is None or found["array"] is None:
        return None
    return int(found["array"]), _ranges(text.partition("_")[2].strip("[]"))


def task_ids_of(listed: str) -> set[int]:
    """The tasks in a list as Slurm's commands print it: ``1,3,5-9%2``, ``0-8:4``; ValueError for anything else, and for
    tasks beyond Slurm's largest MaxArraySize."""
    found: set[int] = set()
    for tasks in _ranges(listed):
        found.update(tasks)
    return found


def _ranges(listed: str) -> list[range]:
    found = []
    for part in listed.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"not a list of array tasks: {listed[:80]!r}")
        first = int(match["first"])
        last = int(match["last"] or first)
        if last >= _MAX_ARRAY_SIZE:
            raise ValueError(f"not tasks of an array: {part[:80]!r}")
        found.append(range(first, last + 1, int(match["step"] or 1)))
    return found
