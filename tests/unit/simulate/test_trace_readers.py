"""Reading recorded workloads: what is kept, what is left out, and what is reported."""

from __future__ import annotations

import gzip
from math import inf
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.read_report import Malformed
from omfs_daemon.accounting.trace_files import trace
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload import table
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.read_options import ReadOptions
from omfs_daemon.simulate.workload.workload import COLUMNS, PreemptMode, Workload, workload
from tests.support.traces import DIRECTORY, needs_traces

HEADER = """\
; Computer: IBM SP2
; Acknowledge: Lars Malinowsky
; Acknowledge: somebody else
; UnixStartTime: 1000000
; MaxNodes: 184  ( 6,  171,   7)
; MaxProcs: 1664 (72, 1368, 224)
;
"""


def record(job: int, **fields: float) -> str:
    """A line of a trace; a field that is not named is unknown."""
    names = ("job", "submit", "wait", "run", "allocated", "cpu", "memory", "requested", "limit", "memory_requested")
    names += ("status", "user", "group", "executable", "queue", "partition", "preceding", "think")
    fields = {"job": job, "submit": 0, "run": 60, "allocated": 1, "status": 1} | fields
    assert fields.keys() <= set(names)
    return " ".join(f"{fields.get(name, -1):g}" for name in names) + "\n"


def written(path: Path, *lines: str) -> Path:
    text = "".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


class TestStandardWorkloadFormat:
    def test_header_and_columns(self, tmp_path: Path) -> None:
        line = record(7, submit=50, run=90, allocated=4, limit=3600, memory=10, group=3, user=5, queue=2)
        loaded = load_trace(written(tmp_path / "a.swf.gz", HEADER, "  ", line, record(8, submit=70)))
        facts, jobs = loaded.facts, loaded.workload
        assert (facts.cpus, facts.nodes, facts.start, facts.computer) == (1664, 184, 1000000.0, "IBM SP2")
        assert facts.acknowledge == ("Lars Malinowsky", "somebody else")
        assert jobs.origin == 1000050.0
        assert jobs.job_id.tolist() == [7, 8]
        assert jobs.submit.tolist() == [0, 20]
        assert jobs.cpus.tolist() == [4, 1]
        assert jobs.run.tolist() == [90, 60]
        assert jobs.limit.tolist() == [3600, inf]
        assert jobs.memory.tolist() == [10 * 1024 * 4, 0]
        assert [jobs.accounts[index] for index in jobs.account] == ["group3", "group-unknown"]
        assert loaded.report.sentences() == ("a.swf.gz: 2 records, 2 kept",)

    def test_without_header(self, tmp_path: Path) -> None:
        loaded = load_trace(written(tmp_path / "a.swf", record(1, submit=50)))
        assert (loaded.facts.cpus, loaded.facts.start, loaded.workload.origin) == (None, None, 0.0)

    @pytest.mark.parametrize(("processors", "cpus"), [("allocated", [4, 8, 5]), ("requested", [6, 8, 5])])
    def test_processors_by_choice_fall_back_to_the_other(self, tmp_path: Path, processors, cpus) -> None:
        lines = record(1, allocated=4, requested=6), record(2, allocated=-1, requested=8), record(3, allocated=5)
        loaded = load_trace(written(tmp_path / "a.swf", *lines), ReadOptions(processors=processors))
        assert loaded.workload.cpus.tolist() == cpus

    @pytest.mark.parametrize(
        ("accounts", "names"),
        [
            ("group", ["group1", "group2"]),
            ("user", ["user9", "user9"]),
            ("queue", ["queue0"] * 2),
            ("none", ["all"] * 2),
        ],
    )
    def test_accounts_by_choice(self, tmp_path: Path, accounts, names) -> None:
        lines = [record(group, group=group, user=9, queue=0) for group in (1, 2)]
        jobs = load_trace(written(tmp_path / "a.swf", *lines), ReadOptions(accounts=accounts)).workload
        assert [jobs.accounts[index] for index in jobs.account] == names

    def test_urgent_by_queue_is_never_preempted(self, tmp_path: Path) -> None:
        lines = [record(queue, queue=queue) for queue in (1, 2, 3)]
        plain = written(tmp_path / "a.swf", *lines)
        jobs = load_trace(plain, ReadOptions(urgent_queues=(1, 3), mode=PreemptMode.KILL)).workload
        assert jobs.urgent.tolist() == [True, False, True]
        assert jobs.mode.tolist() == [PreemptMode.NEVER, PreemptMode.KILL, PreemptMode.NEVER]
        assert not load_trace(plain).workload.urgent.any()
        told = written(tmp_path / "b.swf", "; UrgentQueues: 2\n", *lines)
        assert load_trace(told).workload.urgent.tolist() == [False, True, False]
        assert not load_trace(told, ReadOptions(urgent_queues=())).workload.urgent.any()

    def test_requested_memory_where_the_used_is_unknown(self, tmp_path: Path) -> None:
        lines = record(1, memory=-1, memory_requested=3, allocated=2), record(2, memory=4, memory_requested=3)
        jobs = load_trace(written(tmp_path / "a.swf", *lines)).workload
        assert jobs.memory.tolist() == [3 * 1024 * 2, 4 * 1024]

    def test_dropped_are_counted_by_reason_and_do_not_set_time_0(self, tmp_path: Path) -> None:
        loaded = load_trace(
            written(
                tmp_path / "a.swf",
                record(1, submit=5, run=-1),
                record(2, submit=6, allocated=-1),
                record(3, submit=7, allocated=0, requested=0),
                record(4, submit=-1),
                record(5, submit=8, status=2),
                record(6, submit=9, run=0),
            )
        )
        assert loaded.workload.job_id.tolist() == [6]
        assert loaded.workload.submit.tolist() == [0]
        assert loaded.report.kept == 1
        assert loaded.report.sentences() == (
            "a.swf: 6 records, 1 kept",
            "left out: 1 with a status of 2 to 4 (a part of a job)",
            "left out: 1 with unknown submission",
            "left out: 1 with unknown run time",
            "left out: 2 with unknown processors",
        )

    def test_out_of_order_records_are_put_in_order(self, tmp_path: Path) -> None:
        jobs = load_trace(written(tmp_path / "a.swf", record(1, submit=9), record(2, submit=4))).workload
        assert (jobs.job_id.tolist(), jobs.submit.tolist()) == ([2, 1], [0, 5])

    def test_malformed_lines_with_their_numbers(self, tmp_path: Path) -> None:
        lines = (
            HEADER,  # lines 1 to 7
            record(1),
            "1 2 3\n",
            "\n",
            record(2).replace("60", "6o"),
            record(3).strip() + " 19\n",
            "; in between\n",
            record(4).replace("60", "nan"),
            record(5, allocated=1.5),
            record(1),
            record(6),
        )
        path = written(tmp_path / "a.swf", *lines)
        loaded = load_trace(path)
        assert loaded.workload.job_id.tolist() == [1, 6]
        assert loaded.report.records == 8
        assert loaded.report.malformed == (
            Malformed("line 9", "3 fields, not 18"),
            Malformed("line 11", "a field is no number"),
            Malformed("line 12", "19 fields, not 18"),
            Malformed("line 14", "a field is no number"),
            Malformed("line 15", "job, processors, status, user, group or queue is no whole number"),
            Malformed("line 16", "its job number stood in a line before"),
        )
        assert loaded.report.sentences()[1].startswith("left out: 6 malformed: line 9 (3 fields, not 18), line 11 (")
        assert loaded.report.sentences()[1].endswith(", ...")
        with pytest.raises(ConfigError, match=r"a\.swf: 6 malformed: line 9 \(3 fields, not 18\)"):
            load_trace(path, ReadOptions(strict=True))

    @pytest.mark.parametrize(
        "beyond",
        [
            {"job": 2.0**53},
            {"submit": 2e10},
            {"run": 1e300},
            {"limit": 1e11},
            {"allocated": 2e7 + 1e6},
            {"requested": 1e15},
            {"memory": 1e15},
            {"memory": 1e10, "requested": 1e6},
            {"memory_requested": 1e308},
        ],
    )
    def test_numbers_that_are_not_believed(self, tmp_path: Path, beyond: dict[str, float]) -> None:
        bad = record(**({"job": 1} | beyond))
        loaded = load_trace(
            written(tmp_path / "a.swf", bad, record(2, submit=1e10, run=1e10, limit=1e10, allocated=2e7))
        )
        assert [place for place, _ in loaded.report.malformed] == ["line 1"]
        assert loaded.workload.job_id.tolist() == [2]

    def test_a_header_that_is_not_believed_says_nothing(self, tmp_path: Path) -> None:
        absurd = f"; UnixStartTime: {'9' * 400}\n; MaxProcs: {'9' * 5000}\n; UrgentQueues: {'9' * 5000}\n"
        loaded = load_trace(written(tmp_path / "a.swf", absurd, record(1)))
        assert (loaded.facts.start, loaded.facts.cpus, loaded.facts.urgent_queues) == (None, None, ())

    @given(st.lists(st.sampled_from(["good", "short", "text", "empty", "comment"]), min_size=1, max_size=60))
    def test_every_malformed_line_is_found_wherever_it_stands(self, tmp_path: Path, kinds: list[str]) -> None:
        texts = {"short": "1 2\n", "text": "x " * 18 + "\n", "empty": "\n", "comment": "; a: b\n"}
        lines = [texts.get(kind, record(number)) for number, kind in enumerate(kinds, start=1)]
        path = written(tmp_path / "a.swf", record(0), *lines)
        report = load_trace(path).report
        bad = [f"line {number}" for number, kind in enumerate(kinds, start=2) if kind in ("short", "text")]
        assert [place for place, _ in report.malformed] == bad
        assert report.kept == 1 + kinds.count("good")

    @pytest.mark.parametrize("lines", [(), (HEADER,), ("hello\n",), (record(1, run=-1),)])
    def test_nothing_to_replay(self, tmp_path: Path, lines) -> None:
        with pytest.raises(ConfigError, match=r"a\.swf: no record that can be replayed"):
            load_trace(written(tmp_path / "a.swf", *lines))

    def test_progress_goes_up_to_1(self, tmp_path: Path) -> None:
        told: list[float] = []
        load_trace(written(tmp_path / "a.swf", *map(record, range(25_000))), progress=told.append)
        assert len(told) >= 3
        assert told == sorted(told)
        assert 0 <= told[0] < told[-1] == 1


@needs_traces
@pytest.mark.parametrize(
    ("name", "regular", "urgent"),
    [
        ("SDSC-DS-2004-2.1-cln.swf.gz", 85_045, 0),
        ("LANL-CM5-1994-4.1-cln.swf.gz", 122_057, 0),
        ("dwd-2020-09-17.swf.gz", 5_493, 8_313),
        ("hpc2n-excerpt.swf.gz", 3_145, 0),
        ("sx-ace-2019.swf.gz", 54_124, 0),  # published: 54,123, see the reader
        ("mira-2018.csv.gz", 22_508, 0),
    ],
)
def test_counts_of_recorded_traces(name: str, regular: int, urgent: int) -> None:
    loaded = load_trace(DIRECTORY / name, ReadOptions(strict=True))
    assert (int((~loaded.workload.urgent).sum()), int(loaded.workload.urgent.sum())) == (regular, urgent)
    assert loaded.workload.submit[0] == 0
    assert loaded.report.kept == regular + urgent


MIRA = (
    ",job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,node_hour,new_status\n"
)


class TestMira:
    def test_nodes_are_what_is_counted_and_projects_are_accounts(self, tmp_path: Path) -> None:
        rows = "0,5,1,8,0,0,8192.0,512.0,1000.0,7,20.0,30.0,1,Pass\n1,6,1,9,0,0,8,1.0,900.0,7,10.5,0,1,Pass\n"
        loaded = load_trace(written(tmp_path / "mira.csv.gz", MIRA, rows), ReadOptions(mode=PreemptMode.CHECKPOINT))
        jobs = loaded.workload
        assert (loaded.facts.cpus, jobs.origin) == (49152, 900.0)
        assert jobs.job_id.tolist() == [6, 5]
        assert jobs.submit.tolist() == [0, 100]
        assert jobs.cpus.tolist() == [1, 512]
        assert jobs.run.tolist() == [10.5, 20]
        assert jobs.limit.tolist() == [inf, 30]
        assert [jobs.accounts[index] for index in jobs.account] == ["group9", "group8"]
        assert jobs.mode.tolist() == [PreemptMode.CHECKPOINT] * 2

    def test_malformed_rows_with_their_lines(self, tmp_path: Path) -> None:
        good = "0,{},1,8,0,0,8192.0,512.0,1000.0,7,20.0,30.0,1,Pass\n"
        rows = good.format(1), good.format(2).replace("512.0", "0"), "1,2,3\n", good.format(1), good.format(3)
        path = written(tmp_path / "other.csv", MIRA, *rows)
        loaded = load_trace(path)
        assert loaded.workload.job_id.tolist() == [1, 3]
        assert loaded.facts.cpus is None
        assert loaded.report.records == 5
        assert loaded.report.malformed == (
            Malformed("line 3", "column node_num: '0' is not allowed, only a whole number from 1 to 20,000,000"),
            Malformed("line 4", "3 fields, not 14"),
            Malformed("line 5", "its job number stood in a row before"),
        )
        with pytest.raises(ConfigError, match="3 malformed"):
            load_trace(path, ReadOptions(strict=True))

    def test_has_no_queues(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="accounts: 'queue' is not in this log: one of group, user, none"):
            load_trace(written(tmp_path / "mira.csv", MIRA), ReadOptions(accounts="queue"))


SECONDS = st.floats(0, bounds.SECONDS, allow_nan=False)
SIZES = st.floats(0, bounds.BYTES, allow_nan=False)
NAMES = st.text(st.characters(exclude_categories=("C",)) | st.sampled_from('",#'), min_size=1, max_size=8)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 8))

    def column(values: st.SearchStrategy) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)))

    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    return workload(
        "any",
        column(SECONDS),
        column(st.integers(1, bounds.CPUS)),
        column(SECONDS),
        origin=draw(SECONDS),
        accounts=tuple(names),
        job_id=np.array(draw(st.lists(st.integers(0, bounds.NUMBER), min_size=count, max_size=count, unique=True))),
        limit=column(SECONDS | st.just(inf)),
        account=column(st.integers(0, len(names) - 1)),
        urgent=column(st.booleans()),
        mode=column(st.sampled_from(PreemptMode)),
        memory=column(SIZES),
        swap=column(SIZES),
    )


class TestTable:
    @pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
    @given(jobs=workloads(), cpus=st.none() | st.integers(1, bounds.CPUS))
    def test_is_read_as_it_was_written(self, tmp_path: Path, ending: str, jobs: Workload, cpus: int | None) -> None:
        path = tmp_path / f"jobs.{ending}"
        table.write_table(jobs, path, cpus)
        loaded = load_trace(path)
        again = loaded.workload
        for name in COLUMNS:
            if name != "account":
                np.testing.assert_array_equal(getattr(again, name), getattr(jobs, name), name, strict=True)
        assert [again.accounts[index] for index in again.account] == [jobs.accounts[index] for index in jobs.account]
        assert (again.origin, loaded.facts.cpus) == (jobs.origin, cpus)

    def test_what_is_not_said(self, tmp_path: Path) -> None:
        text = "job_id,submit,cpus,run,class\n1,0,2,5,\n2,3,1,4,urgent\n"
        jobs = load_trace(written(tmp_path / "a.csv", text), ReadOptions(mode=PreemptMode.KILL)).workload
        assert jobs.accounts == ("all",)
        assert jobs.limit.tolist() == [inf, inf]
        assert jobs.urgent.tolist() == [False, True]
        assert jobs.mode.tolist() == [PreemptMode.KILL, PreemptMode.NEVER]
        assert jobs.memory.tolist() == jobs.swap.tolist() == [0, 0]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "job_id,submit,cpus,run\n1,0,1,1\n2,0,0,1\n",
                "line 3 .column cpus: '0' .* only a whole number from 1 to 20,000,000",
            ),
            ("# origin: 5\njob_id,submit,cpus,run\n1,0,1.5,1\n", "line 3 .column cpus: '1.5' is not allowed"),
            ("job_id,submit,cpus,run\n\n1,0,1,\n", "line 3 .column run: an empty cell .* only a number from 0 to"),
            ("job_id,submit,cpus,run\n1,0,1,nan\n", "line 2 .column run: 'nan' is not allowed"),
            ("job_id,submit,cpus,run\n1,-1,1,1\n", "line 2 .column submit: '-1' is not allowed"),
            ("job_id,submit,cpus,run,method\n1,0,1,1,stop\n", "column method: 'stop' .* never, kill, checkpoint, swap"),
            ("job_id,submit,cpus,run,class\n1,0,1,1,vip\n", "column class: 'vip' .* only one of regular, urgent"),
            ("job_id,submit,cpus,run\n1,0,1,1\n1,2,1,1\n", "line 3 .its job number stood in a row before"),
            ("job_id,submit,cpus,run\n1,0,1\n", "line 2 .3 fields, not 4"),
            ("job_id,submit,cpus\n1,0,1\n", "no column run; needed are job_id, submit, cpus, run"),
            (
                "job_id,submit,cpus,run,methd\n1,0,1,1,kill\n",
                "column 'methd' is not known: allowed are job_id, .*method",
            ),
            ("job_id,job_id\n1,0\n", "line 1: not a header of distinct column names"),
            ("job_id,submit,cpus,run\n", "no record that can be replayed"),
            ('job_id,"submit,cpus,run\n1,0,1,1\n', "line 1: not a header"),
            ("", "not a header"),
            ("# cpus: many\njob_id,submit,cpus,run\n1,0,1,1\n", "cpus: 'many' is not allowed"),
        ],
    )
    def test_bad_cells_are_reported_in_one_line(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            load_trace(written(tmp_path / "a.csv", text), ReadOptions(strict=True))
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(str(tmp_path / "a.csv"))

    def test_malformed_lines_are_counted_and_listed(self, tmp_path: Path) -> None:
        rows = "1,0,1,1,a\n", "2,0,none,1,a\n", "3,0,1\n", "1,5,1,1,a\n", "\n", '4,0,1,1,"a\n', '5,0,1,1,"a,b"\n'
        loaded = load_trace(written(tmp_path / "a.csv", "# cpus: 4\njob_id,submit,cpus,run,account\n", *rows))
        assert loaded.workload.job_id.tolist() == [1, 5]
        assert loaded.workload.accounts == ("a", "a,b")
        assert loaded.report.records == 6
        assert [place for place, _ in loaded.report.malformed] == ["line 4", "line 5", "line 6", "line 8"]
        assert loaded.report.malformed[-1].why.startswith("not CSV: ")

    def test_a_line_break_in_a_name_is_for_parquet(self, tmp_path: Path) -> None:
        jobs = workload("any", np.zeros(1), np.ones(1, dtype=np.int64), np.ones(1), accounts=("a\n",))
        with pytest.raises(ConfigError, match=r"a line break, which only \.parquet can hold"):
            table.write_table(jobs, tmp_path / "jobs.csv")
        table.write_table(jobs, tmp_path / "jobs.parquet")
        assert load_trace(tmp_path / "jobs.parquet").workload.accounts == ("a\n",)

    @pytest.mark.parametrize(
        ("column", "most"),
        [
            ("job_id", bounds.NUMBER),
            ("submit", bounds.SECONDS),
            ("cpus", bounds.CPUS),
            ("run", bounds.SECONDS),
            ("limit", bounds.SECONDS),
            ("memory", bounds.BYTES),
            ("swap", bounds.BYTES),
        ],
    )
    def test_numbers_that_are_not_believed(self, tmp_path: Path, column: str, most: int) -> None:
        usual = dict.fromkeys(("job_id", "submit", "cpus", "run", "limit", "memory", "swap"), 1)
        for value in (most + max(1, most // 10**15), 10**19 + 1, "1e300", "1" * 400, "inf"):
            cells = ",".join(str(cell) for cell in (usual | {column: value}).values())
            good = ",".join(str(cell) for cell in (usual | {"job_id": 2, column: most}).values())
            loaded = load_trace(written(tmp_path / "a.csv", ",".join(usual) + "\n", cells + "\n", good + "\n"))
            assert [place for place, _ in loaded.report.malformed] == ["line 2"]
            assert f"to {most:,}" in loaded.report.malformed[0].why

    def test_bad_cells_of_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        columns = {"job_id": [1, 2], "submit": [0.0, 1.0], "cpus": [1.0, 2.5], "run": [1, 1]}
        pl.DataFrame(columns).write_parquet(path)
        with pytest.raises(ConfigError, match=r"row 2 \(column cpus: 2\.5 is not allowed"):
            load_trace(path, ReadOptions(strict=True))
        assert load_trace(path).workload.job_id.tolist() == [1]
        pl.DataFrame(columns | {"run": [[1], [2]]}).write_parquet(path)
        with pytest.raises(ConfigError, match=r"column run: List.* is not allowed, only numbers and text"):
            load_trace(path)
        path.write_text("job_id\n")
        with pytest.raises(ConfigError, match="cannot be read as Parquet"):
            load_trace(path)

    def test_writing_wants_a_known_name(self, tmp_path: Path) -> None:
        jobs = workload("any", np.zeros(1), np.ones(1, dtype=np.int64), np.ones(1))
        with pytest.raises(ConfigError, match=r"must end in \.csv, \.csv\.gz or \.parquet"):
            table.write_table(jobs, tmp_path / "jobs.txt")
        with pytest.raises(ConfigError, match="cannot be written"):
            table.write_table(jobs, tmp_path / "nowhere" / "jobs.csv")


class TestFiles:
    def test_unknown_kind(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"a\.txt: the name must end in \.swf, "):
            load_trace(tmp_path / "a.txt")

    @pytest.mark.parametrize("name", ["a.swf.gz", "a.csv.gz"])
    def test_damaged_gzip(self, tmp_path: Path, name: str) -> None:
        whole = gzip.compress("".join(map(record, range(2_000))).encode())
        for damaged in (whole[: len(whole) // 2], b"no gzip", whole[:50] + b"\xff" * 50 + whole[100:]):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(ConfigError, match=r"not a whole gzip file"):
                load_trace(tmp_path / name)

    @pytest.mark.parametrize("name", ["a.swf", "a.csv", "a.parquet"])
    def test_directories_and_missing_files(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError, match=f"{name}: no such file$"):
            load_trace(tmp_path / name)
        (tmp_path / name).mkdir()
        with pytest.raises(ConfigError, match=name):
            load_trace(tmp_path / name)

    def test_unknown_options(self) -> None:
        with pytest.raises(ConfigError, match="processors: 'most' is not known: one of allocated, requested"):
            ReadOptions(processors="most")  # type: ignore[arg-type]


class TestLocate:
    def test_the_directory_goes_before_the_environment(self, tmp_path: Path) -> None:
        for directory in ("given", "named"):
            (tmp_path / directory).mkdir()
            (tmp_path / directory / "a.swf").touch()
        environment = {"OMFS_TRACES": str(tmp_path / "named")}
        assert trace("a.swf", tmp_path / "given", environment) == tmp_path / "given" / "a.swf"
        assert trace("a.swf", None, environment) == tmp_path / "named" / "a.swf"

    @pytest.mark.parametrize(
        ("name", "archive"),
        [
            ("KTH-SP2-1996-2.1-cln.swf.gz", "Parallel Workloads Archive"),
            ("KTH-SP2-1996-2.1-cln.swf", "Parallel Workloads Archive"),
            ("sx-ace-2019.swf.gz", "alea-urgent-sim"),
            ("mira-2018.csv.gz", "DIR-LAB lumos"),
        ],
    )
    def test_what_is_missing_is_named_with_its_archive(self, tmp_path: Path, name: str, archive: str) -> None:
        for read in (lambda: load_trace(tmp_path / name), lambda: trace(name, tmp_path, {})):
            with pytest.raises(ConfigError, match=f"{name}: no such file; it is offered by .*{archive}"):
                read()
        with pytest.raises(ConfigError, match=f"{name} is needed: say with --traces DIR or OMFS_TRACES .*{archive}"):
            trace(name, None, {})
