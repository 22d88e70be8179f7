"""The benchmark of the preemption methods with a few megabytes: each is measured, and the figures are well-formed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import methods, methods_common

pytestmark = pytest.mark.slurm

RATES = {"seconds", "gb_per_s", "bare_seconds", "bare_gb_per_s"}


def test_a_small_run_measures_every_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMFS_DMTCP", raising=False)
    output = tmp_path / "new" / "methods.json"
    swaps = Path("/proc/swaps").read_text().count("omfs-bench-")
    assert methods.main(["--sizes", "8", "--rounds", "1", str(output)]) == 0
    rows = json.loads(output.read_text())
    assert [row["method"] for row in rows] == list(methods.METHODS)
    printed = capsys.readouterr().out
    for row in rows:
        assert "fault" not in row, row
        assert (row["bytes"], row["rounds"]) == (8_000_000, 1)
        assert row["tool"] and row["tool"] in printed and row["rival"] in printed
        for way in (row["out"], row["back"]):
            assert all(way[name] > 0 for name in RATES)
            assert way["overhead_s"] == pytest.approx(way["seconds"] - way["bare_seconds"], abs=0.0011)
            assert way["allowed_s"] == pytest.approx(way["bare_seconds"] / 10 + 0.2, abs=0.0011)
            assert isinstance(way["within"], bool)
    pageout = rows[3]
    assert pageout["device_gb_per_s"] > 0 and pageout["device_share"] > 0 and pageout["bare_device_share"] > 0
    assert Path("/proc/swaps").read_text().count("omfs-bench-") == swaps


def test_figures_are_medians_and_judged_by_a_tenth_and_a_fifth_of_a_second() -> None:
    found = methods.compared([1.0, 9.0, 1.29], [1.0, 0.5, 7.0], 2_000_000_000)
    assert (found["seconds"], found["bare_seconds"], found["overhead_s"]) == (1.29, 1.0, 0.29)
    assert (found["gb_per_s"], found["bare_gb_per_s"]) == (1.55, 2.0)
    assert found["allowed_s"] == 0.3 and found["within"]
    assert not methods.compared([1.31], [1.0], 1)["within"]


def test_what_cannot_be_measured_is_reported_and_the_rest_continues() -> None:
    class Broken:
        method, tool, rival = "criu", "criu 0", "criu"

        def ours(self, size: int) -> methods_common.Times:
            raise RuntimeError("criu restore: exit 1")

        bare = ours

    row = methods.measured(Broken(), 8_000_000, 1)
    assert row["fault"] == "criu restore: exit 1"
    assert methods.shown(row).endswith("not measured: criu restore: exit 1")
