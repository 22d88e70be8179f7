"""``omfs predict``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.errors import ConfigError, UnreachableError
from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.output import cell, print_json, show, span, table
from omfs_daemon.terminal.session import AsJson, session_of
from omfs_daemon.terminal.times import seconds_since_epoch

if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.daemon.api.predict_view import LearningView, PredictView, ScoresView


class PredictGroup(FaultLine):
    """A first word that is none of the commands is an argument of ``job``: ``omfs predict 1234``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["job", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=PredictGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Say how long jobs will run, and how good that was for those that have ended.",
    epilog="Example: omfs predict 1234, or omfs predict --user alice --name train, or omfs predict score",
)

_POLL = 1.0


@app.command("job")
def predict_job(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="A job that waits or runs.", show_default=False)] = "",
    user: Annotated[str, typer.Option(help="The user who would submit a job; default: you.")] = "",
    name: Annotated[str, typer.Option(help="The name that it would have.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say how long a job will run, from jobs that were alike.

    Or a job that would be submitted: --user, --name, or both. Users see predictions for their own jobs, operators for
    all.
    """
    if job and (user or name):
        raise ConfigError("--user and --name are of a job that would be submitted, and do not go with a job's number")
    if not (job or user or name):
        raise ConfigError("a job's number is needed, or --user, --name, or both of a job that would be submitted")
    view = session_of(context).client().predict(job, user, name)
    print_json(view) if as_json else show(*prediction_table(view))


@app.command()
def score(
    context: typer.Context,
    since: Annotated[str, typer.Option(help="Jobs that have ended since: 14d ago, or a time.")] = "14d",
    by: Annotated[str, typer.Option(help="partition, user, predictor, or several with commas.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show how good the predictions were for jobs that have ended.

    By what was foreseen when omfsd first saw each job wait. Of their own jobs for users, of all for operators.
    """
    view = session_of(context).client().score(seconds_since_epoch(since, time.time()), by)
    print_json(view) if as_json else show(*score_table(view))


@app.command()
def learn(
    context: typer.Context,
    since: Annotated[str, typer.Option(help="How far back: 90d, or a time.")] = "90d",
    wait: Annotated[bool, typer.Option(help="Wait until everything has been read.")] = True,
    as_json: AsJson = False,
) -> None:
    """Learn run times from Slurm's accounting, a day at a time.

    omfsd reads it, and goes on later if slurmdbd is away; what is known already is not learned twice.
    """
    client = session_of(context).client()
    view = client.learn(seconds_since_epoch(since, time.time()))
    while wait and view["days_left"] and not view["error"]:
        time.sleep(_POLL)
        view = client.score(time.time(), "")["learning"]
    print_json(view) if as_json else show(cell(_learning(view)))
    if view["error"]:
        raise UnreachableError(f"accounting is not read now, omfsd tries again later: {view['error']}")


@app.command()
def forget(
    context: typer.Context,
    user: Annotated[str, typer.Option(help="Whose jobs.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Delete all that was learned from a user's jobs; the audit log says who did so."""
    view = session_of(context).client().forget_user(user)
    print_json(view) if as_json else show(cell(view["done"]))


def prediction_table(view: PredictView) -> Iterator[RenderableType]:
    """What ``omfs predict JOB`` prints."""
    numbers = ("one in ten below", "half below", "nine in ten below", "limit")
    made = table("", ("job", "user", *numbers, "learned from"), numbers)
    for one in view["predictions"]:
        times = (_span(seconds) for seconds in (one["p10"], one["p50"], one["p90"], one["limit"]))
        source = f"{one['samples']} jobs ({one['key']})" if one["samples"] else f"nothing ({one['key']})"
        made.add_row(cell(one["job"]), cell(one["user"]), *times, cell(source))
    yield made
    yield cell(_learning(view["learning"]))


def score_table(view: ScoresView) -> Iterator[RenderableType]:
    """What ``omfs predict score`` prints."""
    if not view["scores"]:
        yield cell("no job has ended in that time of which something had been foreseen")
    else:
        runs = ("jobs", "accuracy", "median error", "mean error", "ran longer", "below p90")
        starts = ("starts", "before p90", "median off", "Slurm's off")
        made = table("", (*view["by"], *runs, *starts), (*runs, *starts))
        for one in view["scores"]:
            made.add_row(
                *(cell(value) for value in one["group"]),
                f"{one['jobs']:,}",
                f"{one['accuracy']:.3f}",
                f"{one['median_relative_error']:.2f}",
                span(one["mean_absolute_error_seconds"]),
                f"{one['under_predicted']:.0%}",
                f"{one['p90_held']:.0%}",
                f"{one['starts']:,}",
                "" if one["start_p90_held"] is None else f"{one['start_p90_held']:.0%}",
                _span(one["start_median_error_seconds"]),
                _span(one["slurm_start_median_error_seconds"]),
            )
        yield made
    yield cell(_learning(view["learning"]))


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _learning(view: LearningView) -> str:
    days = f"; {view['days_left']} days of accounting are still to be read" if view["days_left"] else ""
    return f"{view['jobs']:,} ended jobs are known, predicted by {view['predictor']}{days}"
