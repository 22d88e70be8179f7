"""What the demo prints: a live display on a terminal, one line per change elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.daemon.api.status_view import AccountView, StatusView
from omfs_daemon.demo.demo_cluster import NODES
from omfs_daemon.terminal.account_table import account_table
from omfs_daemon.terminal.output import cell, clean, table

_REFRESH = 8


class DemoScreen(Protocol):
    """Where the demo is shown; a context manager, because a live display hides the terminal's cursor."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def step(self, title: str, text: str) -> None:
        """A new step begins."""

    def report(self, text: str) -> None:
        """An expectation was met, or not."""

    def show_state(self, status: StatusView, jobs: Sequence[Job], passed: float) -> None:
        """The state of the cluster, ``passed`` seconds after the start."""


def open_screen() -> DemoScreen:
    """The one for this standard output."""
    console = Console(highlight=False, markup=False, emoji=False)
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen()


class LiveScreen:
    """The state stays at the bottom; the text scrolls away above it."""

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

    def step(self, title: str, text: str) -> None:
        self._console.print(Text(f"\n{title}", style="bold"), cell(text), sep="\n")

    def report(self, text: str) -> None:
        self._console.print(cell(text, "green"))

    def show_state(self, status: StatusView, jobs: Sequence[Job], passed: float) -> None:
        self._live.update(Group(*_state_display(status, jobs, passed)))


class PlainScreen:
    """For pipes and logs."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def step(self, title: str, text: str) -> None:
        print(clean(f"== {title}"), clean(text), sep="\n", flush=True)

    def report(self, text: str) -> None:
        print(clean(text), flush=True)

    def show_state(self, status: StatusView, jobs: Sequence[Job], passed: float) -> None:
        facts = dict(_state_lines(status, jobs))
        for gone in self._known.keys() - facts.keys():
            if gone.startswith("job "):
                facts[gone] = f"{gone.removeprefix('job ')} has ended"
        for subject, fact in facts.items():
            if self._known.get(subject) != fact:
                print(f"{passed:6.1f} s  {clean(fact)}", flush=True)
        self._known = facts


def state_text(job: Job) -> str:
    """The state of a job in words."""
    nodes = ",".join(job.on_nodes)
    match job.state:
        case JobState.RUNNING:
            return f"runs on {nodes}"
        case JobState.SUSPENDED:
            return f"is suspended on {nodes}"
        case JobState.PENDING:
            return "is pending" if job.hold is Hold.NONE else "is held"
        case other:
            return f"is {other.value.lower()} on {nodes}"


def _state_lines(status: StatusView, jobs: Iterable[Job]) -> Iterator[tuple[str, str]]:
    yield "omfsd", f"omfsd reports: {status['summary']}"
    for job in sorted(jobs, key=lambda job: job.id):
        yield f"job {_title(job)}", f"{_title(job)} {state_text(job)}"
    for account in status["accounts"]:
        yield f"account {account['account']}", _sums(account)


def _title(job: Job) -> str:
    return f"{job.name} (job {job.id})"


def _sums(account: AccountView) -> str:
    parts = [f"entitled to {account['entitled']}", f"uses {account['used']}"]
    parts += [f"{account[kind]} {kind}" for kind in ("borrowed", "lent", "pending") if account[kind]]
    return f"CPUs of {account['account']}: {', '.join(parts)}"


def _state_display(status: StatusView, jobs: Sequence[Job], passed: float) -> Iterator[RenderableType]:
    yield Text()
    columns = Table.grid(padding=(0, 2))
    columns.add_row(account_table(status["accounts"], "CPUs by account"), _nodes(jobs))
    yield columns
    waiting = [f"{job.name} {state_text(job)}" for job in jobs if not job.on_nodes]
    yield cell("; ".join(waiting) or "no pending jobs")
    yield Panel(cell(status["summary"]), title=f"omfsd, after {passed:.0f} s", title_align="left")


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
