"""The number that each of some jobs has, where lists of an array's tasks are divided. Changed in place."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.job_refs import task_ids_of, tasks_ref


class JobNumbers:
    """Owns ``numbers``, by reference. To change those of a few jobs takes no longer where there are many others."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._of_array: dict[str, set[str]] | None = None
        """The references of tasks, by the array's id; made when it is first needed."""

    def put(self, refs: Iterable[str], number: int) -> None:
        """Of jobs that were left out before."""
        for ref in refs:
            self._numbers[ref] = number
            if self._of_array is not None:
                _add(self._of_array, ref)

    def leave_out(self, refs: Iterable[str]) -> None:
        """These jobs have none any more; of a list of tasks, the others keep theirs."""
        tasks = dict[str, set[int]]()
        for ref in refs:
            self.forget(ref)
            array, listed = _parts(ref)
            if listed:
                tasks.setdefault(array, set()).update(task_ids_of(listed))
        for array, gone in tasks.items():
            for ref in sorted(self._by_array().get(array, ())):
                rest, number = task_ids_of(_parts(ref)[1]) - gone, self._numbers[ref]
                self.forget(ref)
                if rest:
                    self.put([tasks_ref(int(array), rest)], number)

    def forget(self, ref: str) -> None:
        """The number of this very reference, if it has one."""
        if self._numbers.pop(ref, None) is not None and self._of_array is not None:
            self._of_array.get(_parts(ref)[0], set()).discard(ref)

    def _by_array(self) -> dict[str, set[str]]:
        if self._of_array is None:
            self._of_array = {}
            for ref in self._numbers:
                _add(self._of_array, ref)
        return self._of_array


def _add(of_array: dict[str, set[str]], ref: str) -> None:
    array, listed = _parts(ref)
    if listed:
        of_array.setdefault(array, set()).add(ref)


def _parts(ref: str) -> tuple[str, str]:
    """The id of an array, and its tasks as they are listed, "" for a job that is none."""
    array, _, listed = ref.partition("_")
    return array, listed.strip("[]")
