"""What of a site's Slurm the ways of stopping and the books need, each finding with its mend. Pure.

The rules come from slurm.conf(5) and from measurements on Slurm 22.05 (docs/books.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ClusterShell.RangeSet import RangeSet, RangeSetException

from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm.settings_check import Finding
from omfs_daemon.slurm.settings_check import Level
from omfs_daemon.slurm.node_licenses import Book
from omfs_daemon.slurm.gateway import LicenceRow

_HELD = frozenset(range(101, 110))  # the exit codes of omfs-run that must never end a job
_HELD_TEXT = "101-109"
_ENOUGH = 10  # so many times what all nodes have is never short
_SHOWN = 5
_MEMORY, _DEVICES = "memory", "devices"


def requeue_exit_hold(values: Mapping[str, str], launched: Collection[str]) -> list[Finding]:
    """``launched``: the methods done by omfs-run that the configuration lets any class use; none: nothing to say."""
    if not launched:
        return []
    subject, names = "RequeueExitHold", ", ".join(sorted(launched))
    if _HELD & _codes(values.get("RequeueExit", "")):
        what = f"RequeueExit has some of {_HELD_TEXT} too: a job stopped by {names} would start again by itself"
        return [Finding(Level.FAIL, subject, what, f"take {_HELD_TEXT} out of RequeueExit, and scontrol reconfigure")]
    if _codes(values.get(subject, "")) >= _HELD:
        held = Finding(Level.OK, subject, f"a job stopped by {names} goes back into the queue, held")
        return [held, *_output(values)]
    what = f"a job stopped by {names} would end as FAILED, its work unused"
    return [Finding(Level.FAIL, subject, what, f"RequeueExitHold={_HELD_TEXT}, and scontrol reconfigure")]


def _output(values: Mapping[str, str]) -> list[Finding]:
    """sbatch(1), --open-mode: without it, a requeued job's output is truncated unless JobFileAppend is set."""
    if values.get("JobFileAppend", "0") != "0":
        return []
    what = "Slurm empties the output of a job that comes back, unless it was submitted with --open-mode=append"
    return [Finding(Level.WARN, "JobFileAppend", what, "JobFileAppend=1, and scontrol reconfigure")]


def books(books: Sequence[Book], nodes: Sequence[Node], licences: Iterable[LicenceRow]) -> list[Finding]:
    """Whether slurm.conf has the licences that the configuration counts in."""
    rows = {row.name: row for row in licences}
    return [_book(book, nodes, rows) for book in books]


def plug_in(books: Sequence[Book], plugin_books: str, plugin_any: str) -> list[Finding]:
    """Whether job_submit.lua guards them: ``books`` and ``any_licenses`` of its omfs_job_submit.conf."""
    if not books:
        return []
    guarded, held = _listed(plugin_books), _listed(plugin_any)
    open_to_all = [book.licence for book in books if book.licence not in guarded]
    unplaced = [book.any for book in books if book.any and book.any not in held]
    if not open_to_all and not unplaced:
        return [Finding(Level.OK, "books in the plug-in", "owners cannot change what their jobs have of the books")]
    what = []
    if open_to_all:
        what.append(f"the owner of a job can take {', '.join(open_to_all)} off the books while he uses it")
    if unplaced:
        what.append(f"jobs with {', '.join(unplaced)} start before omfsd has chosen a node")
    mend = [f"books={','.join(book.licence for book in books)}"] if open_to_all else []
    mend += [f"any_licenses={','.join(book.any for book in books if book.any)}"] if unplaced else []
    return [
        Finding(Level.FAIL, "books in the plug-in", "; ".join(what), f"{' and '.join(mend)} in omfs_job_submit.conf")
    ]


def grants(
    values: Mapping[str, str], books: Sequence[Book], nodes: Sequence[Node], frees: Mapping[str, Collection[str]]
) -> list[Finding]:
    """What Slurm would keep although a method frees it: ``frees`` is the kinds by method, of all methods in use."""
    return [*_memory(values, books, frees), *_devices(books, nodes, frees)]


def _book(book: Book, nodes: Sequence[Node], rows: Mapping[str, LicenceRow]) -> Finding:
    subject = f"book {book.name}"
    there = {node.name: rows[book.on(node.name)] for node in nodes if book.on(node.name) in rows}
    example = ",".join(f"{book.on(node.name)}:N" for node in nodes[:2])
    if not there:
        what = f"slurm.conf has no licence {book.licence}: nothing is counted, and jobs that ask for it are refused"
        return Finding(Level.FAIL, subject, what, f"Licenses={example} for each node that has it, N of each")
    total = sum(row.total for row in there.values())
    if book.any and book.any not in rows:
        what = f"slurm.conf has no licence {book.any}, with which jobs ask for {book.name} on any node"
        return Finding(
            Level.FAIL, subject, what, f"Licenses={book.any}:{max(9999, _ENOUGH * total)} besides the others"
        )
    if book.any and rows[book.any].total < _ENOUGH * total:
        what = (
            f"{rows[book.any].total} of {book.any} may run out: jobs would wait for it although a node has {book.name}"
        )
        return Finding(Level.WARN, subject, what, f"Licenses={book.any}:{max(9999, _ENOUGH * total)}")
    over = [row.name for row in there.values() if row.used > row.total]
    if over:
        what = f"more is held than there is: {_some(over)}; until enough comes back, nothing that asks for it starts"
        return Finding(Level.WARN, subject, what, "see which jobs hold it: squeue -L NAME")
    without = [node.name for node in nodes if node.name not in there]
    lacking = f"; not on {_some(without)}" if without else ""
    return Finding(Level.OK, subject, f"{total} on {len(there)} nodes, as {book.licence}{lacking}")


def _memory(values: Mapping[str, str], books: Sequence[Book], frees: Mapping[str, Collection[str]]) -> list[Finding]:
    methods = _that_free(_MEMORY, frees)
    if not methods:
        return []
    subject, counts = "memory of stopped jobs", "memory" in values.get("SelectTypeParameters", "").lower()
    has_book = any(book.kind == _MEMORY for book in books)
    if counts:
        what = f"SelectTypeParameters counts memory: what {methods} moves out stays taken, so nobody is granted it"
        mend = "SelectTypeParameters=CR_Core, memory as a book (docs/books.md) and ConstrainRAMSpace in cgroup.conf"
        return [Finding(Level.WARN, subject, what, mend)]
    if has_book:
        return [Finding(Level.OK, subject, f"what {methods} moves out is granted to others by the books")]
    what = f"no book counts memory: jobs besides one stopped by {methods} may need more than a node has"
    return [Finding(Level.WARN, subject, what, f"a [[book]] of kind {_MEMORY!r} (docs/books.md)")]


def _devices(books: Sequence[Book], nodes: Sequence[Node], frees: Mapping[str, Collection[str]]) -> list[Finding]:
    methods = _that_free(_DEVICES, frees)
    if not methods:
        return []
    subject, counted = "devices of stopped jobs", [book for book in books if book.kind == _DEVICES]
    if not counted:
        what = f"no book counts devices: what {methods} frees stays taken in Slurm's books"
        return [Finding(Level.WARN, subject, what, f"a [[book]] of kind {_DEVICES!r} (docs/books.md)")]
    names = {name.partition(":")[0] for node in nodes for name, _ in node.gres}
    both = sorted({book.name for book in counted} & names)
    if both:
        what = f"{', '.join(both)} is a Gres as well: jobs that ask for it by --gres keep it while they are stopped"
        mend = "take it out of GresTypes and Gres=, so that all ask by --licenses"
        return [Finding(Level.WARN, subject, what, mend)]
    return [Finding(Level.OK, subject, f"what {methods} frees is granted to others by the books")]


def _that_free(kind: str, frees: Mapping[str, Collection[str]]) -> str:
    return ", ".join(sorted(method for method, kinds in frees.items() if kind in kinds))


def _codes(text: str) -> set[int]:
    """``"100,101-109"`` as numbers; words (SPECIAL_EXIT) and "(null)" are none."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        try:
            found.update(int(code) for code in RangeSet(part))
        except (RangeSetException, ValueError):
            continue
    return found


def _listed(text: str) -> set[str]:
    return set(text.replace(" ", "").split(","))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
