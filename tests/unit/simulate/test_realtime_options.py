"""Options of real-time jobs, places, and checkpoint schemes: what is allowed, and one line for what is not."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.engine.checkpoint_scheme import checkpoint_costs, periodic_checkpoints, scheme_named
from omfs_daemon.simulate.engine.places import MIRA_CPUS, MIRA_SIZES, layout_named, place_arrays, read_places
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.options import SimulationOptions, scenario_for
from omfs_daemon.simulate.realtime_options import RealtimeOptions, realtime_setting, with_realtime_jobs
from omfs_daemon.simulate.workload.workload import Workload, workload


def jobs(count: int = 10) -> Workload:
    run = np.arange(count, dtype=np.float64) * 100
    return workload("some", np.zeros(count), np.ones(count, dtype=np.int64), run, limit=run + 100)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": "aligned:0"}, "--layout 'aligned:0': must be flat, aligned:UNIT"),
        ({"layout": "aligned:1000"}, "--layout aligned:1000: 49,152 CPUs are no multiple of 1,000"),
        ({"layout": "torus"}, "--layout 'torus': must be flat, aligned:UNIT"),
        ({"scheme": "sys:0"}, "--scheme 'sys:0': must be none, jit, sys:SECONDS"),
        ({"scheme": "app:0"}, "--scheme 'app:0': must be"),
        ({"scheme": "app:101"}, "--scheme 'app:101': must be"),
        ({"scheme": "often"}, "--scheme 'often': must be"),
        ({"scheme": "app:nan"}, "--scheme 'app:nan': must be"),
        ({"realtime_share": 1.5}, "--realtime-share = 1.5: must be from 0 to 1"),
        ({"realtime_share": -0.1}, "--realtime-share = -0.1: must be from 0 to 1"),
        ({"act_at": ("narrow=1.1",)}, "--act-at 'narrow=1.1': must be NAME=X, NAME one of narrow-short"),
        ({"act_at": ("wide-long=0.9",)}, "--act-at 'wide-long=0.9': must be NAME=X"),
        ({"victim_max": ("wide-long",)}, "--victim-max 'wide-long': must be NAME=X"),
        ({"weight": ("size=1",)}, "--weight 'size=1': must be NAME=X, NAME one of slowdown, checkpoint, remaining"),
        ({"file_system": "fast"}, "--file-system 'fast': must be shared or each"),
        ({"memory_per_cpu": -1.0}, "--memory-per-cpu = -1: must be bytes"),
        ({"realtime_share": 0.1, "realtime": Path("some.csv")}, "--realtime: the file names all"),
        ({"layout": "mira", "places": Path("some.csv")}, "--places: the file is the layout"),
    ],
)
def test_what_is_not_allowed(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match="^" + words.replace("(", r"\(")) as error:
        realtime_setting(RealtimeOptions(**options), Machine(MIRA_CPUS))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_mira_is_one_machine_only() -> None:
    with pytest.raises(ConfigError, match=r"--layout mira: Mira has 49,152 CPUs \(nodes\), this machine 100"):
        layout_named("mira", 100)
    layout = layout_named("mira", MIRA_CPUS)
    counts = [sum(place.size == size for place in layout.places) for size in MIRA_SIZES]
    assert counts == [96, 48, 24, 12, 6, 4, 3, 2, 1, 1]
    arrays = place_arrays(layout)
    assert [arrays.size[first] for first in arrays.first_of[:-1]] == list(MIRA_SIZES)


def test_a_layout_takes_the_place_of_nodes() -> None:
    with pytest.raises(ConfigError, match="--nodes: places take their part; not with --layout aligned:2"):
        realtime_setting(RealtimeOptions(layout="aligned:2"), Machine(8, 4))


def test_a_file_of_places(tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text("place,size,units\nR0,4,0-1\nR1,4,2-3\nrow,8,0-3\nodd,6,1 3\n")
    layout = read_places(path, 8)
    assert [(place.size, place.units) for place in layout.places] == [
        (4, (0, 1)),
        (4, (2, 3)),
        (6, (1, 3)),
        (8, (0, 1, 2, 3)),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("place,size\nR0,4\n", "the first line must be place,size,units"),
        ("place,size,units\n", "0 places: must be from 1"),
        ("place,size,units\nR0,9,0\n", "line 2: size '9' must be CPUs, from 1 to 8"),
        ("place,size,units\nR0,4,x\n", "line 2: units 'x' must be numbers or ranges"),
        ("place,size,units\nR0,4,\n", "line 2: no units"),
        ("place,size,units\nR0,4,0\nR0,4,1\n", "line 3: 'R0' is there twice"),
    ],
)
def test_a_wrong_file_of_places(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "places.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_places(path, 8)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_real_time_jobs_are_drawn_named_or_short(tmp_path: Path) -> None:
    assert not with_realtime_jobs(jobs(), RealtimeOptions(), 1).realtime.any()
    drawn = [with_realtime_jobs(jobs(), RealtimeOptions(realtime_share=0.35), seed).realtime for seed in (1, 1, 2)]
    assert [one.sum() for one in drawn] == [3, 3, 3]
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).any()
    under = RealtimeOptions(realtime_under=250)
    assert np.flatnonzero(with_realtime_jobs(jobs(), under, 0).realtime).tolist() == [0, 1, 2]
    both = with_realtime_jobs(jobs(), replace(under, realtime_share=0.2), 0).realtime
    assert both.sum() == 2
    assert not both[3:].any()
    named = tmp_path / "named.csv"
    named.write_text("job_id\n3\n5\n")
    assert with_realtime_jobs(jobs(), RealtimeOptions(realtime=named), 0).realtime.nonzero()[0].tolist() == [2, 4]


def test_unknown_real_time_jobs_are_listed(tmp_path: Path) -> None:
    named = tmp_path / "named.csv"
    named.write_text("job_id\n3\n" + "".join(f"{number}\n" for number in range(21, 30)))
    with pytest.raises(ConfigError, match="not in the workload: 21, 22, 23, 24, 25, 26 and 3 more"):
        with_realtime_jobs(jobs(), RealtimeOptions(realtime=named), 0)


def test_a_log_without_real_time_jobs_says_nothing_of_them() -> None:
    scenario, notes = scenario_for(SimulationOptions(procs=4), jobs(), None)
    assert not scenario.workload.realtime.any()
    assert not any("real-time" in note for note in notes)
    options = SimulationOptions(procs=4, realtime=RealtimeOptions(realtime_share=0.2))
    unlimited = replace(jobs(), limit=np.full(10, inf))
    assert scenario_for(options, unlimited, None).notes[-1] == (
        "real-time jobs: 2; 2 without a time limit, never due unless run times are predicted"
    )


def test_what_a_checkpoint_takes() -> None:
    """Section 5.2, Equation 34, and the worked example of section 7.1.4."""
    nodes = np.array([512, 6912, 8192, 12288, 16384, 49152])
    costs = checkpoint_costs(nodes, np.zeros(6), 16e9, shared=True)
    assert costs.seconds.tolist() == [512, 512, 607, 911, 1214, 3641]
    assert costs.queueing == pytest.approx(nodes * 16 / 216)
    assert checkpoint_costs(nodes, np.zeros(6), 16e9, shared=False).queueing.tolist() == [0.0] * 6
    limit = np.array([7200.0, 7200.0, 600.0])
    periodic = periodic_checkpoints(scheme_named("app:10"), limit, np.full(3, 300.0), np.array([True, False, True]))
    assert periodic.most.tolist() == [2, 0, 0]
    assert periodic.interval[0] == 2400.0
