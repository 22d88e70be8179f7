"""The pictures of dashboards: units, legends, and a server that is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.grafana.render import legend, with_unit
from tests.support.monitoring_files import ROOT
from tests.support.waiting import LIMIT


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (90.0, "s", "1.5 min"),
        (0.25, "s", "250 ms"),
        (0.0, "s", "0 ms"),
        (3 << 30, "bytes", "3 GiB"),
        (2e6, "Bps", "2 MB/s"),
        (0.5, "percentunit", "50 %"),
        (12, "short", "12"),
        (20000, "short", "20,000"),
    ],
)
def test_values_have_their_units(value: float, unit: str, text: str) -> None:
    assert with_unit(value, unit) == text


def test_legends_are_filled_in_as_by_grafana() -> None:
    labels = {"__name__": "x", "job": "omfsd", "method": "pageout", "instance": "head"}
    assert legend("{{method}} {{ direction }}out", labels) == "pageout out"
    assert legend("", labels) == "method=pageout, instance=head"


@pytest.mark.parametrize(("server", "says"), [("head:9090", "must begin with http"), ("http://127.0.0.1:1", "refused")])
def test_a_server_that_cannot_be_asked_is_one_line(server: str, says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.grafana.render", server, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1
    assert says in done.stderr and done.stderr.count("\n") == 1
