"""Logs of jobs: every format, what is left out of them, and what is refused."""

from __future__ import annotations

import gzip
import random
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from omfs_daemon.accounting.grid_engine_table import CONVERTED_FIELDS
from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.accounting.nearly_sorted import SMALLEST
from omfs_daemon.accounting.read_log import LogOptions, read_log
from omfs_daemon.accounting.record_period import RecordPeriod
from omfs_daemon.errors import ConfigError, NothingFound

UTC = LogOptions(zone=ZoneInfo("UTC"))
LENIENT = LogOptions(zone=ZoneInfo("UTC"), lenient=True)

# Table 2 of Yoon et al. (2020); its WAIT and E_RUN contradict its dates.
PUBLISHED = (
    "20181029|2310609|na0|r000|mpi_solver|normal|20181026111256|20181028191152|20181029050924|444543|35852|128|"
    "2521538.58|2269836.14|345363.75|D|256|11343872|0(128)|0(128)|1|0"
)


def written(directory: Path, name: str, *lines: str) -> Path:
    path = directory / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def malformed(records: JobRecords) -> dict[str, str]:
    return dict(records.report.malformed)


def native(job: object, **other: object) -> str:
    """A line of accounting(5) as Grid Engine 8.1.9 writes it: 45 fields."""
    fields: dict[str, object] = {
        "qname": "all.q", "hostname": "n1", "group": "users", "owner": "alice", "job_name": "run",
        "job_number": job, "account": "sge", "priority": 0,
        "submission_time": 1000, "start_time": 1010, "end_time": 1070, "failed": 0, "exit_status": 0,
    }  # fmt: skip
    fields |= {f"ru{number}": 0 for number in range(18)} | {"project": "NONE", "department": "d", "granted_pe": "NONE"}
    fields |= {"slots": 4, "task_number": 0, "cpu": 59.5, "mem": 0.1, "io": 0, "category": "-l h_rt=3600", "iow": 0}
    fields |= {"pe_taskid": "NONE", "maxvmem": 1048576.0, "arid": 0, "ar_submission_time": 0}
    assert other.keys() <= fields.keys()
    return ":".join(str(value) for value in (fields | other).values())


class TestConverted:
    @pytest.mark.parametrize("separator", ["|", ",", "\t", "  "])
    def test_the_published_example_by_its_dates(self, tmp_path: Path, separator: str) -> None:
        records = read_log(written(tmp_path, "jobs.log", PUBLISHED.replace("|", separator)), UTC)
        (row,) = records.frame.to_dicts()
        assert (row["start"] - row["submit"], row["end"] - row["start"], row["cpus"]) == (201_536, 35_852, 256)
        assert (row["state"], row["memory_used"]) == ("COMPLETED", 2269836.14 * 1024)
        assert [(one.what, one.often) for one in records.disagreements] == [("WAIT", 1), ("E_RUN", 1)]
        assert records.disagreements[1].first == ("line 1: E_RUN 11343872, by its dates 9178112",)

    def test_the_first_of_two_equal_clock_times(self, tmp_path: Path) -> None:
        twice = PUBLISHED.replace("20181028191152", "20181028023000")
        paris = LogOptions(zone=ZoneInfo("Europe/Paris"))
        records = read_log(written(tmp_path, "jobs.log", twice), paris)
        first = datetime(2018, 10, 28, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=0).timestamp()
        assert records.frame["start"].to_list() == [first]
        assert "1 times are in an hour that clocks showed twice" in records.report.notes[0]

    def test_bad_lines_are_named(self, tmp_path: Path) -> None:
        lines = [PUBLISHED.replace("2310609", str(job)) for job in range(1, 8)]
        lines[1] = lines[1].replace("20181028191152", "20181328191152")
        lines[2] = lines[2].replace("|256|", "|0|")
        lines[3] += "|more"
        lines[4] = lines[4].replace("20181029050924", "20181027050924")
        lines[5] = lines[5].replace("|6|", "|1|")
        path = written(tmp_path, "jobs.log", *lines)
        records = read_log(path, LENIENT)
        assert malformed(records) == {
            "line 2": "START: no date",
            "line 3": "E_CPU: no number of CPUs",
            "line 4": "23 fields, not 22",
            "line 5": "END before START",
            "line 6": "its job number stood in a record before",
        }
        assert sorted(records.frame["job_id"].to_list()) == ["1", "7"]
        with pytest.raises(ConfigError, match=r"5 of 7 records are malformed, more than 5%: line 2 .*line 4"):
            read_log(path, UTC)
        with pytest.raises(ConfigError, match="5 malformed"):
            read_log(path, LogOptions(strict=True))

    def test_a_header_line(self, tmp_path: Path) -> None:
        records = read_log(written(tmp_path, "jobs.log", "|".join(CONVERTED_FIELDS), PUBLISHED), UTC)
        assert (records.report.records, len(records.frame)) == (1, 1)


RECORDED = Path(__file__).parents[2] / "fixtures" / "grid_engine"
"""What Debian 12's Grid Engine 8.1.9 wrote, and what its qacct adds up (tests/support/record_grid_engine.sh)."""


class TestNative:
    def test_a_recorded_file_adds_up_as_qacct_says(self) -> None:
        records = read_log(RECORDED / "accounting", UTC)
        frame = records.frame
        printed = [line.split() for line in (RECORDED / "qacct.txt").read_text().splitlines()]
        total = next(words for words in printed if len(words) == 7 and words[0].isdecimal())
        assert frame["run"].sum() == float(total[0])
        assert frame["cpu_seconds"].sum() == pytest.approx(float(total[3]), abs=0.01)
        for column, values in (("user", ("alice", "bob")), ("cpus", ("1", "3"))):
            for value in values:
                (row,) = [words for words in printed if len(words) == 8 and words[0] == value]
                assert frame.filter(frame[column].cast(str) == value)["run"].sum() == float(row[1])
        numbers = [words[1] for words in printed if words[:1] == ["jobnumber"]]
        assert set(frame["job_id"].str.split(".").list.first()) == set(numbers)
        assert records.report.dropped == (("no time of submission (rescheduled at once)", 1),)
        states = dict(frame.select("name", "state").iter_rows())
        assert (states["deleted"], states["limited"], states["exits"]) == ("CANCELLED", "TIMEOUT", "FAILED")
        assert frame.filter(frame["array"] == "1").height == 5

    def test_names_with_colons_tasks_and_milliseconds(self, tmp_path: Path) -> None:
        path = written(
            tmp_path, "accounting", "# version", "x",
            native(1, job_name="a:b::c"),
            native(2, task_number=7, submission_time=1700000000000, start_time=1700000001000, end_time=1700000002500),
            native(3, start_time=0, end_time=0, failed=100, exit_status=137),
        )  # fmt: skip
        rows = {row["job_id"]: row for row in read_log(path, UTC).frame.to_dicts()}
        assert (rows["1"]["name"], rows["1"]["cpus"], rows["1"]["limit"]) == ("a:b::c", 4, 3600)
        assert (rows["2.7"]["array"], rows["2.7"]["end"]) == ("2", 1700000002.5)
        assert (rows["3"]["state"], rows["3"]["start"]) == ("CANCELLED", None)

    def test_several_lines_of_one_job(self, tmp_path: Path) -> None:
        path = written(
            tmp_path, "accounting",
            native(1, failed=25, end_time=1030, exit_status=1),
            native(1, start_time=1040, end_time=1100),
            native(2), native(2, pe_taskid="1.n2", cpu=20.5), native(2, pe_taskid="1.n3", cpu=10),
        )  # fmt: skip
        records = read_log(path, UTC)
        rows = records.frame.filter("is_last").to_dicts()
        assert [(row["job_id"], row["first_start"], row["end"]) for row in rows] == [
            ("2", 1010, 1070),
            ("1", 1010, 1100),
        ]
        assert rows[0]["cpu_seconds"] == 59.5 + 20.5 + 10
        assert records.frame["state"].to_list().count("REQUEUED") == 1
        assert records.report.kept == 3

    def test_of_a_long_file_only_the_period_is_read(self, tmp_path: Path) -> None:
        """Ends are nearly in order; a job that was rescheduled keeps the run before the period."""
        times = [{"submission_time": 10_000 * at, "start_time": 10_000 * at + 1} for at in range(1, 9001)]
        ends = [10_000 * at + 5_000 + (at * 7919) % 20_000 for at in range(1, 9001)]
        jobs = [native(at, end_time=end, **time) for at, (end, time) in enumerate(zip(ends, times, strict=True), 1)]
        path = written(tmp_path, "accounting", *jobs, native("x"))
        assert path.stat().st_size > 1.2 * SMALLEST
        since, until = 8000.0 * 10_000, 8010.0 * 10_000
        period = RecordPeriod(since, until)
        records = read_log(path, LogOptions(period=period))
        wanted = {at for at in range(1, 9001) if 10_000 * at < until and ends[at - 1] > since}
        assert set(records.frame["job_id"].cast(int)) == wanted
        (bad,) = records.report.malformed
        assert bad.place.startswith("after byte ")
        number = int(bad.place.rpartition(" ")[2])
        begin = int(bad.place.split()[2].rstrip(",").replace(",", ""))
        assert path.read_bytes()[begin:].count(b"\n") == number
        assert begin > 0
        with pytest.raises(NothingFound, match="no job in the period; what was read of the log is from"):
            read_log(path, LogOptions(period=RecordPeriod(2e9, 3e9)))

    def test_bad_lines(self, tmp_path: Path) -> None:
        path = written(
            tmp_path, "accounting", native(1), native(2, slots="x"), native(3)[:60], native(4, end_time=5), native(1)
        )
        assert malformed(read_log(path, LENIENT)) == {
            "line 2": "slots: 'x' is no number in range",
            "line 3": "18 fields, not 45",
            "line 4": "END before START",
            "line 5": "its job number stood in a record before",
        }

    def test_a_file_of_another_format(self, tmp_path: Path) -> None:
        path = written(tmp_path, "accounting", "a:b:c:d", "a:b:c:d", native("x"))
        with pytest.raises(ConfigError) as refused:
            read_log(path, LogOptions(format="sge"))
        assert "line 1 (4 fields, not 43 or more)" in str(refused.value)
        assert "line 3 (no numbers where a record has them)" in str(refused.value)


FULL = (
    "{job}|{job}|{user}|bio|main|normal|1000|{eligible}|{start}|{end}|60|10|4|4|1|cpu=4|cpu=4,mem=2G|{state}|0:0|"
    "00:00:00|n1|None|00:03:00|1G|{name}|a|comment"
)


def saved(job: int, **other: object) -> str:
    usual: dict[str, object] = {"user": "alice", "eligible": 1005, "start": 1010, "end": 1070, "name": "run"}
    return FULL.format(**(usual | {"job": job, "state": "COMPLETED"} | other))


class TestSacct:
    def test_all_fields_with_and_without_a_header(self, tmp_path: Path) -> None:
        from omfs_daemon.accounting.sacct_rows import FULL_FIELDS

        header = "|".join(FULL_FIELDS)
        plain = read_log(written(tmp_path, "a.sacct", saved(1), saved(2)), UTC).frame
        headed = read_log(written(tmp_path, "b.sacct", header, saved(1), saved(2)), UTC).frame
        assert plain.drop("place").equals(headed.drop("place"))
        row = plain.to_dicts()[0]
        assert (row["eligible"], row["limit"], row["cpu_seconds"]) == (1005, 600, 180)
        assert (row["memory_used"], row["memory_asked"], row["user"]) == (2**30, 2**31, "alice")

    def test_a_header_without_a_needed_field(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="sacct's header: no field Submit"):
            read_log(written(tmp_path, "a.sacct", "JobIDRaw|JobID|Comment", "1|1|x"), UTC)

    def test_the_first_of_two_equal_clock_times(self, tmp_path: Path) -> None:
        """Counted in good records only, of eligible times too."""
        first = saved(1, eligible="2023-10-29T02:30:00", start="2023-10-29T02:45:00", end="2023-10-29T03:30:00")
        bad = saved(2, start="2023-10-29T02:45:00", end="2023-10-29T03:30:00").replace("|60|10|", "|60|ten|")
        berlin = LogOptions(zone=ZoneInfo("Europe/Berlin"), lenient=True)
        records = read_log(written(tmp_path, "a.sacct", first, bad), berlin)
        taken = datetime(2023, 10, 29, 2, 45, tzinfo=ZoneInfo("Europe/Berlin"), fold=0).timestamp()
        assert (records.frame["start"].to_list(), list(malformed(records))) == ([taken], ["line 2"])
        assert records.report.notes == ("2 times are in an hour that clocks showed twice: the first is taken",)

    def test_a_requeued_job_is_one(self, tmp_path: Path) -> None:
        first = saved(1, state="REQUEUED", end=1020)
        again = saved(1, start=1100, end=1160).replace("|1000|", "|1021|")
        frame = read_log(written(tmp_path, "a.sacct", again, first), UTC).frame
        assert frame["is_last"].to_list() == [False, True]
        assert frame["first_submit"].to_list() == [1000, 1000]
        assert frame["first_start"].to_list() == [1010, 1010]


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "good", "late"),
        [
            ("accounting", native(1), native(2, end_time=40_000_000)),
            ("a.sacct", saved(1), saved(2, end=40_000_000)),
            ("converted", PUBLISHED.replace("2018", "1970"), PUBLISHED.replace("2018", "1971").replace("2310609", "2")),
        ],
    )
    def test_times_more_than_a_year_from_now(self, tmp_path: Path, name: str, good: str, late: str) -> None:
        """They would make a report on many years; a clock that is a little behind does no harm."""
        path = written(tmp_path, name, good, late)
        soon = LogOptions(zone=ZoneInfo("UTC"), lenient=True, now=5_000_000)
        assert malformed(read_log(path, soon)) == {"line 2": "a time more than a year from now"}
        assert not malformed(read_log(path, LogOptions(zone=ZoneInfo("UTC"), now=60_000_000)))

    def test_unknown(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"of no known format: not sge .* not sge22 .* not sacct .*--format"):
            read_log(written(tmp_path, "jobs.txt", "hello world"), UTC)
        with pytest.raises(ConfigError, match="--format = 'lsf': must be one of auto, sge"):
            LogOptions(format="lsf")

    def test_a_cut_gzip_file(self, tmp_path: Path) -> None:
        text = "".join(native(job) + "\n" for job in range(2000)).encode()
        (tmp_path / "accounting.gz").write_bytes(gzip.compress(text)[:-30])
        with pytest.raises(ConfigError, match="not a whole gzip file"):
            read_log(tmp_path / "accounting.gz", LogOptions(format="sge"))

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "accounting"
        path.write_bytes(native(1, job_name="na\\xefme").encode("latin-1").replace(b"\\xef", b"\xef") + b"\n")
        assert read_log(path, UTC).frame["name"].to_list() == ["na\N{REPLACEMENT CHARACTER}me"]

    def test_a_table_without_starts(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"not Mira's log .* can be simulated"):
            read_log(written(tmp_path, "jobs.csv", "job_id,submit,cpus,run", "1,0,1,5"), UTC)

    def test_the_order_of_lines_does_not_matter(self, tmp_path: Path) -> None:
        lines = [native(job, start_time=1010 + job, slots=job % 5 + 1) for job in range(1, 60)]
        one = read_log(written(tmp_path, "a", *lines), UTC).frame.drop("place").sort("job_id")
        random.Random(1).shuffle(lines)
        assert read_log(written(tmp_path, "b", *lines), UTC).frame.drop("place").sort("job_id").equals(one)
