"""``omfs methods``, ``omfs methods fit``, costs and hours in ``omfs history``, as people and scripts call them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from omfs_daemon.cli.main import app
from omfs_daemon.config.build import rules
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.api.callers import Caller, Peer, operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.history_view import CostsView, HistoryView, costs_view
from omfs_daemon.daemon.api.idle_hours_view import IdleHoursView, idle_hours_view
from omfs_daemon.daemon.api.methods_view import MethodsView, methods_view
from omfs_daemon.daemon.api.wait_hours_view import WaitHoursView, wait_hours_view
from omfs_daemon.daemon.store.idle_hours import HOUR, IdleHour
from omfs_daemon.daemon.store.wait_hours import StartedJob, wait_shares
from omfs_daemon.preemption.records import PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.simulate.engine.preemption_costs import Link, Spread
from omfs_daemon.simulate.options import SimulationOptions, costs_for

HOSTILE = "[red]\x1b[2J\u202eevil"


def paid(job: str, method: str, direction: str, seconds: float, size: int = 0, lost: float = 0.0) -> PaidCost:
    return PaidCost(1000.0, job, HOSTILE, "bio", method, direction, seconds, seconds / 2, size, lost)


def measured() -> list[PaidCost]:
    """DMTCP: 1.5 s and 0.5 GB/s; back 2 s and 1 GB/s, without sizes of their own. Page-out: sizes do not vary."""
    rows = []
    for number in range(1, 21):
        size = number * 10**8
        rows.append(paid(str(number), "dmtcp", "out", 1.5 + size / 0.5e9, size))
        rows.append(paid(str(number), "dmtcp", "in", 2.0 + size / 1e9))
    rows += [paid(f"p{number}", "pageout", "out", 0.8, 10**9) for number in range(10)]
    rows += [paid(f"s{number}", "suspend", "out", 0.25) for number in range(4)]
    rows += [paid(f"r{number}", "requeue", "out", 5.0, lost=77.0) for number in range(8)]
    rows += [paid(f"g{number}", "gone_method", "out", 5.0) for number in range(8)]
    return rows


class Stub:
    """A daemon that answers about methods and the past only."""

    def __init__(self) -> None:
        self.rows: list[PaidCost] = measured()
        self.asked: list[tuple[object, ...]] = []

    def methods(self, caller: Caller) -> MethodsView:
        view = methods_view(Settings(preempt_timeouts={"pageout": 900.0}), "omfsd")
        why_not = [{"why": f"it has no swap {HOSTILE}", "count": 7, "nodes": ["n1", "n2", "n3", "n4", "n5"]}]
        for method in view["methods"]:
            match method["name"]:
                case "pageout":
                    method["now"] = {"usable": 9, "nodes": 16, "why_not": why_not}  # type: ignore[typeddict-item]
                case "dmtcp":
                    method["now"] = {"ready": 1, "why_not": []}
                case _:
                    method["now"] = {"usable": 16, "nodes": 16, "why_not": []}
        return view

    def costs(self, caller: Caller, limit: int, since: float) -> CostsView:
        self.asked.append((caller.user, limit, since))
        return costs_view(self.rows[-limit:])

    def idle_hours(self, caller: Caller, since: float) -> IdleHoursView:
        return idle_hours_view([IdleHour(begin, 3000.0, {"limited": 1800.0, "down": 0.0}) for begin in (0.0, HOUR)])

    def wait_hours(self, caller: Caller, since: float) -> WaitHoursView:
        jobs = [StartedJob(at * HOUR, "main", HOSTILE, wait) for at, wait in ((1.2, 30.0), (1.5, 7000.0), (2.0, 5.0))]
        return wait_hours_view(wait_shares(jobs))

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        victim = {"job": "7", "account": "bio", "method": "dmtcp", "preempted": True}
        whole = {
            **victim,
            "preempt_seconds": 2.125,
            "bytes": 1_500_000_000,
            "resume_seconds": 8.0,
            "lost_seconds": 90.5,
        }
        requeued = {
            **victim,
            "job": "8",
            "method": "requeue",
            "preempt_seconds": 0.5,
            "bytes": 0,
            "lost_seconds": 700.0,
        }
        unknown = {**victim, "job": "9"}
        spared = {**victim, "job": "11", "preempted": False}
        return {
            "preemptions": [
                {
                    "time": 998.0,
                    "preemptor": "10",
                    "account": "physics",
                    "urgent": False,
                    "reason": "entitled",
                    "victims": [whole, requeued, unknown, spared],  # type: ignore[list-item]
                    "waited_seconds": 0.4,
                    "outcome": "started",
                }
            ]
        }


class Site:
    """A running stub and its configuration file."""

    def __init__(self, directory: Path) -> None:
        self.handler = Stub()
        self.config = directory / "omfs.toml"
        self.config.write_text(f'[daemon]\nrun_dir = "{directory}"\n[methods.criu]\npreempt_seconds = 4.5\n')

    def omfs(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["-c", str(self.config), *words])

    def json(self, *words: str) -> Any:
        result = self.omfs(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with ControlServer(tmp_path / "omfs.sock", made.handler, operators(None, None), peer=lambda _: Peer(0, 0)):  # type: ignore[arg-type]
        yield made


def row_of(output: str, name: str) -> str:
    (row,) = (line for line in output.splitlines() if line.startswith(f"│ {name} "))
    return " ".join(part.strip() for part in row.split("│"))


# -- omfs methods ------------------------------------------------------------------------------------


def test_methods_are_listed_with_their_traits(site: Site) -> None:
    output = site.omfs("methods").stdout
    assert "from omfsd" in output
    assert row_of(output, "requeue").split()[:6] == ["requeue", "no", "anywhere", "CPUs,", "memory,", "devices"]
    assert "yes same nodes CPUs, memory omfs-node on its nodes 0.3 s + 1 GB/s" in row_of(output, "pageout")
    assert row_of(output, "pageout").endswith("15 min on 9 of 16 nodes ")
    assert "omfs-run in the job 1 s + 0.4 GB/s 7 s + 0.4 GB/s" in row_of(output, "dmtcp")
    assert row_of(output, "dmtcp").endswith("in 1 running job ")
    assert "yes same nodes CPUs Slurm at once at once" in row_of(output, "suspend")
    assert "pageout: not on n1, n2, n3, n4, n5 and 2 more: it has no swap" in output
    assert "suspend, pageout, ve_swap: not for jobs of submitit, unless they name methods" in output
    assert "\x1b" not in output and "\u202e" not in output


def test_methods_as_json_are_the_view(site: Site) -> None:
    rows = {row["name"]: row for row in site.json("methods")["methods"]}
    assert list(rows) == ["requeue", "suspend", "dmtcp", "criu", "application", "pageout", "ve_swap"]
    assert rows["ve_swap"]["frees"] == ["cpus", "devices"]
    assert rows["suspend"]["speed"]["preempt_bytes_per_second"] is None
    assert rows["pageout"]["now"]["usable"] == 9


def test_without_the_daemon_the_configuration_answers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    output = site.omfs("methods").stdout
    assert f"from {site.config}" in " ".join(output.split())
    assert "4.5 s + 0.4 GB/s" in row_of(output, "criu")
    assert row_of(output, "criu").endswith("10 min ? ")
    assert "only omfsd knows" in output
    assert all("now" not in row for row in site.json("methods")["methods"])


# -- omfs history ------------------------------------------------------------------------------------


def test_history_shows_what_each_preemption_cost(site: Site) -> None:
    output = site.omfs("history").stdout
    assert "7 of bio (dmtcp: 2.1 s, 1.5 GB; resumed in 8.0 s; 90 s lost)" in output
    assert "8 of bio (requeue: 0.5 s; 12 min lost)" in output
    assert "9 of bio (dmtcp)" in output
    assert "11 of bio (dmtcp: not preempted)" in output
    assert site.json("history")["preemptions"][0]["victims"][0]["resume_seconds"] == 8.0


def test_history_lists_hours(site: Site) -> None:
    newest, middle, oldest = site.json("history", "--hours")["hours"]
    assert [row["begin"] for row in (newest, middle, oldest)] == [2 * HOUR, HOUR, 0.0]
    assert newest["idle"] is None and oldest["waits"] == []
    assert middle["idle"]["cpu_seconds"] == {"limited": 1800.0, "down": 0.0}
    waits = {row["group"]: row for row in middle["waits"]}
    assert waits["partition"] == {
        "begin": HOUR,
        "group": "partition",
        "value": "main",
        "jobs": 2,
        "mean_wait_seconds": 3515.0,
        "longest_wait_seconds": 7000.0,
    }
    assert waits["account"]["value"] == HOSTILE
    listed = site.omfs("history", "--hours", "--limit", "2").stdout
    (row,) = [line for line in listed.splitlines() if "117 min" in line]
    assert re.findall(r"59 min|117 min|0\.5|0\.0", row) == ["59 min", "117 min", "0.5", "0.0"]
    assert len(site.json("history", "--hours", "--limit", "2")["hours"]) == 2
    refused = site.omfs("history", "--hours", "--costs")
    assert refused.exit_code == 2 and "only one of them" in refused.stderr


def test_history_lists_the_costs(site: Site) -> None:
    listed = site.omfs("history", "--costs", "--limit", "100").stdout
    assert "resumed" in listed and "77 s" in listed and "1 GB" in listed and "\x1b" not in listed
    site.handler.asked.clear()
    rows = site.json("history", "--costs", "--limit", "3", "--since", "1970-01-02T00:00+00:00")["costs"]
    assert [row["job"] for row in rows] == ["g7", "g6", "g5"]
    assert site.handler.asked == [("root", 3, 86400.0)]
    site.handler.rows = []
    assert "no job was preempted or resumed" in site.omfs("history", "--costs").stdout


# -- omfs methods fit --------------------------------------------------------------------------------


def test_fit_finds_the_speed_or_reports_why_not(site: Site) -> None:
    found = {row["name"]: row for row in site.json("methods", "fit")["methods"]}
    assert list(found) == ["requeue", "suspend", "dmtcp", "pageout"]
    assert found["dmtcp"]["preempt"]["fitted"] == {
        "seconds": pytest.approx(1.5),
        "bytes_per_second": pytest.approx(0.5e9),
    }
    assert found["dmtcp"]["resume"]["fitted"]["bytes_per_second"] == pytest.approx(1e9)
    assert found["pageout"]["preempt"]["fitted"] is None
    assert found["pageout"]["preempt"]["why_not"] == "the sizes do not vary: they are all about 1 GB"
    assert found["pageout"]["preempt"]["median_seconds"] == 0.8
    assert found["pageout"]["resume"] is None


def test_what_is_printed_for_the_configuration_can_be_pasted(site: Site) -> None:
    text = site.json("methods", "fit")["toml"]
    config = parse_config(text, "pasted")
    assert tomllib.loads(text)["methods"]["dmtcp"]["preempt_bytes_per_second"] == 5e8
    speeds = rules(config, ()).speeds
    assert (speeds["dmtcp"].preempt_seconds, speeds["dmtcp"].resume_rate) == (1.5, 1e9)
    assert speeds["requeue"].preempt_seconds == 5.0, "the size does not matter there"
    assert speeds["pageout"] == rules(parse_config("", "none"), ()).speeds["pageout"], (
        "the median alone is only a remark"
    )
    assert "# preempt: median 0.8 s of 10 rows; nothing fitted: the sizes do not vary" in text


def test_a_size_that_does_not_matter_can_be_written_down(site: Site) -> None:
    site.handler.rows = [paid(str(number), "criu", "out", 3.0, number * 10**9) for number in range(1, 10)]
    speed = rules(parse_config(site.json("methods", "fit")["toml"], "pasted"), ()).speeds["criu"]
    assert speed.preempt_seconds + 10**12 / speed.preempt_rate == pytest.approx(3.0, abs=0.01)


def test_the_simulator_takes_its_options(site: Site) -> None:
    found = {row["name"]: row["simulate"] for row in site.json("methods", "fit")["methods"]}
    assert found["requeue"] == ["--method", "kill"]
    assert found["dmtcp"] == [
        "--method", "checkpoint", "--checkpoint-out", "1.5+bytes/5e+08", "--checkpoint-in", "2+bytes/1e+09",
    ]  # fmt: skip
    assert found["pageout"] == ["--method", "swap", "--swap-out", "0.8:0.8"]
    costs = costs_for(SimulationOptions(checkpoint_out=found["dmtcp"][3], swap_out=found["pageout"][3]))
    assert (costs.write, costs.swap_out) == (Link(job=5e8, fixed=1.5), Spread(0.8, 0.8))


def test_fit_for_people(site: Site) -> None:
    output = site.omfs("methods", "fit", "--since", "30d").stdout
    assert "preempt 20 3.6 s 1.5 s + 0.5 GB/s" in " ".join(output.replace("│", " ").split())
    assert "[methods.dmtcp]\npreempt_seconds = 1.5\npreempt_bytes_per_second = 5e+08\n" in output
    assert "dmtcp: omfs simulate --method checkpoint --checkpoint-out 1.5+bytes/5e+08" in output
    assert "without the seconds that Slurm takes to start the job again" in " ".join(output.split())


def test_fit_without_data_or_daemon(site: Site, tmp_path: Path) -> None:
    site.handler.rows = []
    nothing = site.omfs("methods", "fit")
    assert (nothing.exit_code, nothing.stdout) == (
        1,
        "nothing to fit: no preemption in that time has a recorded cost\n",
    )
    assert site.omfs("methods", "fit", "--since", "soon").exit_code == 2
    silent = CliRunner().invoke(app, ["--socket", str(tmp_path / "none.sock"), "methods", "fit"])
    assert silent.exit_code == 3 and silent.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("methods",), ("methods", "fit")])
def test_help_has_an_example(words: tuple[str, ...]) -> None:
    output = CliRunner().invoke(app, [*words, "--help"]).stdout
    assert f"omfs {' '.join(words)}" in output and "Example" in output
