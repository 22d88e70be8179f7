"""``omfs advise``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon import __version__
from omfs_daemon.cli.named_user import named_user
from omfs_daemon.cli.simulation.replay_source import (
    Procs,
    Strict,
    Trace,
    Until,
    load_period,
    replay_machine,
    replay_period,
)
from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.config.build import rules
from omfs_daemon.errors import DeniedError
from omfs_daemon.terminal.output import cell, print_json, show, span, table
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import AsJson, session_of

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.config.schema import Config
    from omfs_daemon.simulate.limit_advice import Advised, LimitAdvice

_SHOWN = 30
_POLICY = "conservative"
_CONVENTIONS = (
    "waits: replayed under conservative backfilling, which takes limits for run times as Slurm's does, on one pool of "
    "CPUs; with the limits asked for, and if everybody named here had asked for the suggested ones",
    "a job that ran longer than the suggested limit is replayed with the limit that it needed; asked to keep to the "
    "suggested one, it would have been ended",
    "no limit is changed by this command",
)
_BY_SLURM = "replayed are the jobs that Slurm shows you"


def advise(
    context: typer.Context,
    user: Annotated[
        str | None, typer.Option(help="Whose jobs; default: yours; everybody's for operators and with --trace.")
    ] = None,
    trace: Trace = None,
    since: Annotated[
        str | None, typer.Option(help="Instead of a trace: ask Slurm's accounting, from e.g. 30d ago (the default).")
    ] = None,
    until: Until = None,
    procs: Procs = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Say which time limits are asked far too high, and how much sooner jobs would have started with lower ones.

    Per user and name of jobs (digits in names do not count): the limit asked for, how long they ran, a limit with a
    fifth to spare above 99 in 100 of them, and their waits before and after. No limit is changed.
    """
    require_simulator()
    from omfs_daemon.simulate.comparison import Side, replayed
    from omfs_daemon.simulate.limit_advice import advised_limits
    from omfs_daemon.simulate.policies.policy_table import policy_named
    from omfs_daemon.simulate.workload.read_options import ReadOptions

    config = session_of(context).config()
    whose = user if trace is not None else _whose(user, config)
    period = replay_period(trace, "30d" if trace is None and since is None else since, until, config)
    site = rules(config, config.all_entitlements)
    with progress() as bars:
        loaded = load_period(period, ReadOptions(strict=strict, rules=site), bars)
        machine = replay_machine(procs, loaded, config)
        bars.add_task(f"{len(loaded.workload):,} jobs, twice", total=None)
        side = Side(replayed(loaded.workload, machine.cpus, site), policy_named(_POLICY))
        found = advised_limits(side, whose)
    sentences = [*loaded.report.sentences(), machine.source, *_CONVENTIONS]
    if trace is None:
        sentences.append(_BY_SLURM)
    if found.wider:
        sentences.append(f"jobs that are wider than the machine, and were not replayed: {found.wider:,}")
    if as_json:
        head = {"version": __version__, "workload": loaded.workload.name}
        print_json(head | {"conventions": sentences} | found.as_json())
    else:
        show(*advice_tables(found, sentences))


def _whose(user: str | None, config: Config) -> str | None:
    """None for everybody; DeniedError for another user's, unless an operator asks."""
    own = named_user(config)
    if own is None:
        return user
    if user not in (None, own):
        raise DeniedError(f"--user {user}: advice on jobs of others is for operators")
    return own


def advice_tables(found: Advised, sentences: list[str]) -> Iterator[RenderableType]:
    """What ``omfs advise`` prints."""
    useful = [row for row in found.rows if row.suggested is not None]
    if not useful:
        yield cell(f"The time limits of all {len(found.rows):,} kinds of jobs fit how long they run.", "bold")
    else:
        numbers = ("jobs", "limit asked for", "half ran below", "99 in 100 below", "enough", "longer", "wait", "then")
        made = table("Limits asked too high, the most first", ("user", "name", *numbers), numbers)
        for row in useful[:_SHOWN]:
            made.add_row(cell(row.user), cell(row.name), *_figures(row))
        yield made
        if len(useful) > _SHOWN:
            yield cell(f"and {len(useful) - _SHOWN} more: --json has all")
        saved = found.wait_before - found.wait_after
        change = f"{span(abs(saved))} {'less' if saved >= 0 else 'more'}"
        yield cell(f"All jobs together would have waited {span(found.wait_after)} on average, {change}.")
    yield cell("What these figures rest on:")
    for sentence in sentences:
        yield cell(f"  - {sentence}")


def _figures(row: LimitAdvice) -> Iterator[str]:
    yield f"{row.jobs:,}"
    yield from (span(seconds) for seconds in (row.limit, row.p50, row.p99))
    yield "" if row.suggested is None else span(row.suggested)
    yield f"{row.longer:,}"
    yield from ("" if wait is None else span(wait) for wait in (row.wait_before, row.wait_after))
