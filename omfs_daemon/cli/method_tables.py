"""Methods, what they have cost and what was fitted, as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from rich.console import RenderableType
from rich.text import Text

from omfs_daemon.cli.output import cell, clean, span, table, when
from omfs_daemon.daemon.fitted_text import Fitted, simulator, toml
from omfs_daemon.daemon.fitting import Fit
from omfs_daemon.daemon.views import CostsView, MethodNowView, MethodsView, MethodView, PastVictimView, WhyNotView

_DONE_BY = {"slurm": "Slurm", "omfs-run": "omfs-run in the job", "omfs-node": "omfs-node on its nodes"}
_CPUS = {"cpus": "CPUs"}


def methods(view: MethodsView) -> Iterator[RenderableType]:
    """What ``omfs methods`` prints."""
    columns = ("method", "keeps work", "comes back", "frees", "done by", "stop", "back", "time-out", "usable now")
    made = table(f"How jobs can be stopped (as {clean(view['source'])} has it)", columns, ("time-out",))
    for method in view["methods"]:
        pace = method["pace"]
        made.add_row(
            cell(method["name"] + ("" if method["built_in"] else " (of the site)")),
            "yes" if method["keeps_work"] else "no",
            cell(method["comes_back"]),
            cell(", ".join(_CPUS.get(what, what) for what in method["frees"])),
            cell(_DONE_BY[method["done_by"]]),
            pace_text(pace["stop_seconds"], pace["stop_bytes_per_second"]),
            pace_text(pace["back_seconds"], pace["back_bytes_per_second"]),
            span(method["stop_timeout_seconds"]),
            _usable(method.get("now")),
        )
    yield made
    yield from _why_not(view["methods"])
    if not any("now" in method for method in view["methods"]):
        yield Text("where they can be used now only omfsd knows: it does not answer, or has not seen Slurm yet")


def pace_text(seconds: float, rate: float | None) -> str:
    """``1 s + 0.4 GB/s``."""
    by_size = None if rate is None else f"{rate / 1e9:.3g} GB/s"
    if by_size is None:
        return f"{seconds:.3g} s" if seconds else "at once"
    return f"{seconds:.3g} s + {by_size}" if seconds else by_size


def _usable(now: MethodNowView | None) -> str:
    if now is None:
        return "?"
    if "ready" in now:
        jobs = now["ready"]
        return f"in {jobs} running job{'' if jobs == 1 else 's'}"
    return f"on {now.get('usable', 0)} of {now.get('nodes', 0)} nodes"


def _why_not(rows: Iterable[MethodView]) -> Iterator[Text]:
    for method in rows:
        for why_not in method.get("now", MethodNowView(why_not=[]))["why_not"]:
            yield cell(f"{method['name']}: not on {_nodes(why_not)}: {why_not['why']}")


def _nodes(why_not: WhyNotView) -> str:
    named, more = ", ".join(why_not["nodes"]), why_not["count"] - len(why_not["nodes"])
    return f"{named} and {more} more" if more > 0 else named


# -- costs -------------------------------------------------------------------------------------------


def past_victims(victims: Iterable[PastVictimView]) -> Text:
    """One a line."""
    rows = (cell(f"{victim['job']} of {victim['account']} ({_paid(victim)})") for victim in victims)
    return Text("\n").join(rows)


def _paid(victim: PastVictimView) -> str:
    """``dmtcp: 2.1 s, 1.5 GB; back 8.0 s; 3.0 s lost``."""
    moved = [span(victim["stop_seconds"])] if "stop_seconds" in victim else []
    moved += [size_text(victim["bytes"])] if victim.get("bytes") else []
    parts = [", ".join(moved)] if moved else []
    parts += [f"back {span(victim['resume_seconds'])}"] if victim.get("resume_seconds") else []
    parts += [f"{span(victim['lost_seconds'])} lost"] if victim.get("lost_seconds") else []
    return victim["method"] + (": " if parts else "") + "; ".join(parts)


def size_text(size: int) -> str:
    """``1.5 GB``, ``23 MB``."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def costs(view: CostsView) -> Iterator[RenderableType]:
    """What ``omfs history --costs`` prints."""
    if not view["costs"]:
        yield Text("no job was stopped or came back in that time")
        return
    numbers = ("took", "moving", "moved", "lost")
    made = table("", ("when", "job", "user", "account", "method", "what", *numbers), numbers)
    for row in view["costs"]:
        made.add_row(
            when(row["time"]),
            cell(row["job"]),
            cell(row["user"]),
            cell(row["account"]),
            cell(row["method"]),
            "stopped" if row["way"] == "out" else "came back",
            span(row["seconds"]) if row["seconds"] else "",
            span(row["moving_seconds"]) if row["moving_seconds"] else "",
            size_text(row["bytes"]) if row["bytes"] else "",
            span(row["lost_seconds"]) if row["lost_seconds"] else "",
        )
    yield made


# -- fits --------------------------------------------------------------------------------------------


def fits(found: Sequence[Fitted]) -> Iterator[RenderableType]:
    """What ``omfs methods fit`` prints."""
    if not found:
        yield Text("nothing to fit: no stop in that time tells what it has cost")
        return
    columns = ("method", "what", "rows", "in the median", "fitted", "spread")
    made = table(
        "How long it took; half of the rows lie within the spread", columns, ("rows", "in the median", "spread")
    )
    for one in found:
        for what, fit in (("stop", one.stop), ("back", one.back)):
            if fit is not None:
                line = pace_text(fit.fixed, fit.rate if isfinite(fit.rate) else None) if fit.is_line else fit.why_not
                made.add_row(
                    cell(one.traits.name), what, str(fit.rows), f"{fit.median:.3g} s", cell(line), f"{fit.spread:.3g} s"
                )
    yield made
    yield Text("For the configuration:")
    yield Text("\n" + toml(list(found)) + "\n")
    yield Text("For the simulator, one method at a time:")
    for one in found:
        yield Text(f"{one.traits.name}: omfs simulate {' '.join(simulator(one))} ...")
    if any(one.traits.launched and one.back is not None for one in found):
        yield Text(
            "A return by omfs-run is told without the seconds that Slurm takes to start the job again: add them to"
            " back_seconds."
        )


def fits_as_json(found: Sequence[Fitted]) -> dict[str, object]:
    """What ``omfs methods fit --json`` prints."""
    return {
        "methods": [
            {
                "name": one.traits.name,
                "stop": None if one.stop is None else _fit(one.stop),
                "back": None if one.back is None else _fit(one.back),
                "simulate": simulator(one),
            }
            for one in found
        ],
        "toml": toml(list(found)),
    }


def _fit(fit: Fit) -> dict[str, object]:
    """``bytes_per_second`` is null where the size does not matter, ``fitted`` null where there is no line."""
    rate = fit.rate if isfinite(fit.rate) else None
    line = {"seconds": fit.fixed, "bytes_per_second": rate} if fit.is_line else None
    return {
        "rows": fit.rows,
        "median_seconds": fit.median,
        "spread_seconds": fit.spread,
        "fitted": line,
        "why_not": fit.why_not,
    }
