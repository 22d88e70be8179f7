"""How the demo looks: a live picture on a terminal, one line per change elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from omfs_daemon.terminal.account_table import accounts as tables_accounts
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.output import table
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.api.status_view import AccountView
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.demo.demo_cluster import NODES

_REFRESH = 8


class View(Protocol):
    """What the story is shown on; a context, because a live picture takes the terminal's cursor."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def scene(self, title: str, text: str) -> None:
        """A new scene begins."""

    def say(self, text: str) -> None:
        """Something came true, or did not."""

    def picture(self, status: StatusView, jobs: Sequence[Job], passed: float) -> None:
        """How things are, ``passed`` seconds after the beginning."""


def view() -> View:
    """The one for this standard output."""
    console = Console(highlight=False, markup=False, emoji=False)
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView()


class LiveView:
    """The picture stays at the bottom, what was said scrolls away above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=_REFRESH, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def scene(self, title: str, text: str) -> None:
        self._console.print(Text(f"\n{title}", style="bold"), cell(text), sep="\n")

    def say(self, text: str) -> None:
        self._console.print(cell(text, "green"))

    def picture(self, status: StatusView, jobs: Sequence[Job], passed: float) -> None:
        self._live.update(Group(*_pictures(status, jobs, passed)))


class PlainView:
    """For pipes and logs."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def scene(self, title: str, text: str) -> None:
        print(clean(f"== {title}"), clean(text), sep="\n", flush=True)

    def say(self, text: str) -> None:
        print(clean(text), flush=True)

    def picture(self, status: StatusView, jobs: Sequence[Job], passed: float) -> None:
        facts = dict(_facts(status, jobs))
        for gone in self._known.keys() - facts.keys():
            if gone.startswith("job "):
                facts[gone] = f"{gone.removeprefix('job ')} has ended"
        for subject, fact in facts.items():
            if self._known.get(subject) != fact:
                print(f"{passed:6.1f} s  {clean(fact)}", flush=True)
        self._known = facts


def where(job: Job) -> str:
    """What a job does, in words."""
    nodes = ",".join(job.on_nodes)
    match job.state:
        case JobState.RUNNING:
            return f"runs on {nodes}"
        case JobState.SUSPENDED:
            return f"is suspended on {nodes}"
        case JobState.PENDING:
            return "waits" if job.hold is Hold.NONE else "waits, held"
        case other:
            return f"is {other.value.lower()} on {nodes}"


def _facts(status: StatusView, jobs: Iterable[Job]) -> Iterator[tuple[str, str]]:
    yield "omfsd", f"omfsd says: {status['sentence']}"
    for job in sorted(jobs, key=lambda job: job.id):
        yield f"job {_title(job)}", f"{_title(job)} {where(job)}"
    for account in status["accounts"]:
        yield f"account {account['account']}", _sums(account)


def _title(job: Job) -> str:
    return f"{job.name} (job {job.id})"


def _sums(account: AccountView) -> str:
    parts = [f"entitled to {account['entitled']}", f"uses {account['used']}"]
    parts += [f"{account[kind]} {kind}" for kind in ("borrowed", "lent", "pending") if account[kind]]
    return f"CPUs of {account['account']}: {', '.join(parts)}"


def _pictures(status: StatusView, jobs: Sequence[Job], passed: float) -> Iterator[RenderableType]:
    yield Text()
    columns = Table.grid(padding=(0, 2))
    columns.add_row(tables_accounts(status["accounts"], "CPUs by account"), _nodes(jobs))
    yield columns
    waiting = [f"{job.name} {where(job)}" for job in jobs if not job.on_nodes]
    yield cell("; ".join(waiting) or "no job waits")
    yield Panel(cell(status["sentence"]), title=f"omfsd, after {passed:.0f} s", title_align="left")


def _nodes(jobs: Iterable[Job]) -> Table:
    made = table("Jobs by node", ("node", "runs", "suspended there"))
    on: dict[str, tuple[list[str], list[str]]] = {f"n{number}": ([], []) for number in range(1, NODES + 1)}
    for job in jobs:
        for node in job.on_nodes:
            running, suspended = on[node]
            (suspended if job.state is JobState.SUSPENDED else running).append(job.name)
    for node, (running, suspended) in sorted(on.items()):
        made.add_row(node, cell(", ".join(running)), cell(", ".join(suspended), "yellow"))
    return made
