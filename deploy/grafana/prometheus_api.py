"""Questions to a Prometheus over HTTP."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from math import isfinite
from typing import Any, NamedTuple

_SECONDS = 30.0


class Series(NamedTuple):
    """``points``: time (seconds since the epoch) and value, finite ones only."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


def ask(server: str, what: str, **parameters: object) -> Any:
    """The ``data`` of an answer; OSError if the server does not answer, or refuses the question."""
    url = f"{server}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
    if not url.startswith(("http://", "https://")):
        raise OSError(f"{server}: must begin with http:// or https://")
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310
        try:
            return json.load(answer)["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise OSError("what answers there is no Prometheus") from error


def query_range(server: str, expression: str, start: float, end: float, step: float) -> list[Series]:
    """The series of an expression that have a value in this time. OSError as for ``ask``."""
    found = ask(server, "query_range", query=expression, start=start, end=end, step=step)["result"]
    series = [Series(one["metric"], _finite(one["values"])) for one in found]
    return [one for one in series if one.points]


def _finite(values: list[list[Any]]) -> list[tuple[float, float]]:
    """Without NaN: a quantile of nothing."""
    return [(float(at), float(text)) for at, text in values if isfinite(float(text))]
