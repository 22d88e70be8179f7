"""Workloads from Slurm's accounting: what a real sacct printed, what users write into comments, what is left out."""

from __future__ import annotations

import gzip
import sys
import time
from datetime import datetime
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.accounting.read_report import Malformed
from omfs_daemon.errors import ConfigError, GatewayError, ParseError
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.simulate.workload import sacct
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.read_options import ReadOptions
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

# Slurm 22.05.8 with slurmdbd: a comment with a newline, an urgent job that was canceled, one that never ran, a
# requeued one, one that was suspended for 3 s, a heterogeneous one, an array.
REAL = """\
1|1|1795240438|1795240438|1795240441|3|UNLIMITED|4|bio|main|normal|COMPLETED|omfs:method=suspend
2|2|1795240438|1795240438|1795240440|2|10|2|physics|main|normal|COMPLETED|x|y
z\\n 1|2|3 omfs:method=requeue
4|4|1795240438|1795240438|1795240504|66|UNLIMITED|1|bio|main|urgent|CANCELLED by 0|
5|5|1795240438|None|1795240504|0|Partition_Limit|16|bio|main|normal|CANCELLED by 0|
7|7|1795240438|1795240439|1795240442|3|525600|3|physics|main|normal|REQUEUED|
8|8|1795240438|1795240439|1795240445|3|525600|3|physics|main|normal|COMPLETED|
9|9+0|1795240438|1795240440|1795240442|2|UNLIMITED|1|bio|main|normal|COMPLETED|
10|9+1|1795240438|1795240440|1795240442|2|UNLIMITED|2|bio|main|normal|COMPLETED|
11|3_1|1795240438|1795240438|1795240439|1|UNLIMITED|1|bio|main|normal|COMPLETED|
12|3_2|1795240438|1795240438|1795240439|1|UNLIMITED|1|bio|main|normal|COMPLETED|
3|3_3|1795240438|1795240438|1795240439|1|UNLIMITED|1|bio|main|normal|COMPLETED|
7|7|1795240442|1795240449|1795240469|20|525600|3|physics|main|normal|COMPLETED|
"""
NAMES = ("id", "name", "submit", "start", "end", "elapsed", "limit", "cpus")
NAMES += ("account", "partition", "qos", "state", "comment")

RULES = Rules(
    methods=BUILT_IN_TRAITS,
    unmatched=REGULAR,
    classes=(
        JobClassRule("urgent", qos=frozenset({"urgent"}), urgent=True),
        JobClassRule("non-preemptible", accounts=frozenset({"fixed"})),
        JobClassRule("rest", methods=("requeue", "suspend"), default=("requeue",)),
    ),
)


def fields(job: int, **other: object) -> list[str]:
    """A record of an ended job of one CPU and one minute; what is named is different."""
    usual = {"id": job, "name": job, "submit": 1000, "start": 1010, "end": 1070, "elapsed": 60, "limit": 2, "cpus": 1}
    usual |= {"account": "bio", "partition": "main", "qos": "normal", "state": "COMPLETED", "comment": ""}
    assert other.keys() <= set(NAMES)
    return [str((usual | other)[name]) for name in NAMES]


def record(job: int, **other: object) -> str:
    return "|".join(fields(job, **other)) + "\n"


def written(directory: Path, *lines: str) -> Path:
    path = directory / "jobs.sacct"
    path.write_text("".join(lines))
    return path


def by_job(jobs: Workload, column: str) -> dict[int, object]:
    return dict(zip(jobs.job_id.tolist(), getattr(jobs, column).tolist(), strict=True))


class TestFile:
    def test_what_a_real_sacct_printed(self, tmp_path: Path) -> None:
        loaded = load_trace(written(tmp_path, REAL), ReadOptions(rules=RULES))
        jobs = loaded.workload
        assert jobs.origin == 1795240438.0
        assert by_job(jobs, "run") == {1: 3, 2: 2, 4: 66, 7: 20, 8: 3, 9: 2, 10: 2, 11: 1, 12: 1, 3: 1}
        assert by_job(jobs, "cpus") == {1: 4, 2: 2, 4: 1, 7: 3, 8: 3, 9: 1, 10: 2, 11: 1, 12: 1, 3: 1}
        assert jobs.submit.tolist() == [0] * 10
        limits = by_job(jobs, "limit")
        assert (limits[1], limits[2], limits[7]) == (inf, 600, 525600 * 60)
        assert [job for job, urgent in by_job(jobs, "urgent").items() if urgent] == [4]
        modes = by_job(jobs, "mode")
        assert (modes[1], modes[2], modes[4]) == (PreemptMode.SWAP, PreemptMode.KILL, PreemptMode.NEVER)
        assert [jobs.accounts[index] for index in jobs.account] == ["bio", "physics", "bio", "physics", "physics"] + [
            "bio"
        ] * 5
        assert loaded.report.malformed == (Malformed("line 3", "3 fields, not 13"),)
        assert loaded.report.sentences() == (
            "jobs.sacct: 13 records, 10 kept",
            "left out: 1 with a later run (requeued; the job counts from its first submission)",
            "left out: 1 with no start (never ran, or waits)",
            "left out: 1 malformed: line 3 (3 fields, not 13)",
        )
        with pytest.raises(ConfigError, match=r"jobs\.sacct: 1 malformed: line 3"):
            load_trace(tmp_path / "jobs.sacct", ReadOptions(rules=RULES, strict=True))

    def test_compressed(self, tmp_path: Path) -> None:
        path = tmp_path / "jobs.sacct.gz"
        path.write_bytes(gzip.compress(REAL.encode()))
        assert load_trace(path).report.kept == 10

    def test_written_out_times_are_local(self, tmp_path: Path) -> None:
        times = {"submit": "2026-11-21T05:53:58", "start": "2026-11-21T05:53:59", "end": "2026-11-21T05:54:00"}
        late = times | {"submit": "2026-11-21T05:55:00"}
        jobs = load_trace(written(tmp_path, record(1, **times), record(2, **late))).workload
        assert jobs.origin == datetime(2026, 11, 21, 5, 53, 58).timestamp()
        assert jobs.submit.tolist() == [0, 62]

    def test_the_first_of_two_equal_clock_times(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        try:
            times = {"submit": "2023-10-29T01:30:00", "start": "2023-10-29T02:30:00", "end": "2023-10-29T02:31:00"}
            found = load_trace(written(tmp_path, record(1, **times)))
        finally:
            monkeypatch.undo()
            time.tzset()
        assert found.report.notes == ("2 times are in an hour that clocks showed twice: the first is taken",)

    def test_without_rules_the_options_hold(self, tmp_path: Path) -> None:
        jobs = load_trace(written(tmp_path, REAL), ReadOptions(mode=PreemptMode.KILL)).workload
        assert set(jobs.mode.tolist()) == {PreemptMode.KILL}
        assert not jobs.urgent.any()

    def test_treatment_is_what_the_classes_say(self, tmp_path: Path) -> None:
        lines = [
            record(1, account="fixed"),
            record(2, account="fixed", comment="omfs:method=requeue"),
            record(3, comment="omfs:method=suspend"),
            record(4, comment="omfs:method=checkpoint"),
            record(5, qos="urgent", comment="omfs:method=suspend"),
        ]
        jobs = load_trace(written(tmp_path, *lines), ReadOptions(rules=RULES)).workload
        assert jobs.mode.tolist() == [
            PreemptMode.NEVER,
            PreemptMode.NEVER,
            PreemptMode.SWAP,
            PreemptMode.KILL,
            PreemptMode.NEVER,
        ]
        assert jobs.urgent.tolist() == [False] * 4 + [True]

    @pytest.mark.parametrize("method", BUILT_IN_TRAITS)
    def test_every_method_has_a_mode(self, method: str, tmp_path: Path) -> None:
        rules = Rules(
            methods=BUILT_IN_TRAITS,
            unmatched=REGULAR,
            classes=(JobClassRule("all", methods=(*BUILT_IN_TRAITS, "gone"), default=("gone",)),),
        )
        lines = [record(1, comment=f"omfs:method={method}"), record(2)]
        jobs = load_trace(written(tmp_path, *lines), ReadOptions(rules=rules)).workload
        modes = {"requeue": PreemptMode.KILL} | dict.fromkeys(("suspend", "pageout", "ve_swap"), PreemptMode.SWAP)
        assert jobs.mode.tolist() == [modes.get(method, PreemptMode.CHECKPOINT), PreemptMode.SWAP]

    def test_a_comment_decides_nothing_but_the_method(self, tmp_path: Path) -> None:
        """Separators, words of ours and whole records in it: none makes the job urgent, longer or another's."""
        comments = ["|" * 40, "urgent|main|urgent|COMPLETED|", record(99, qos="urgent").strip(), "\x1b[2J\u202e", "'\""]
        lines = [record(number, comment=comment) for number, comment in enumerate(comments, start=1)]
        loaded = load_trace(written(tmp_path, *lines), ReadOptions(rules=RULES))
        assert loaded.workload.job_id.tolist() == [1, 2, 3, 4, 5]
        assert not loaded.workload.urgent.any()
        assert set(loaded.workload.run.tolist()) == {60}
        assert not loaded.report.malformed

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("rubbish\n", "1 fields, not 13"),
            (record(2, id="2.batch"), "JobIDRaw: '2.batch' is no whole number"),
            (record(2, id="9" * 5000), f"JobIDRaw: '{'9' * 40}' is no whole number"),
            (record(2, submit="Unknown"), "no time of submission"),
            (record(2, submit="yesterday"), "Submit: 'yesterday' is no time"),
            (record(2, start="2026-13-01T00:00:00"), "Start: '2026-13-01T00:00:00' is no time"),
            (record(2, end="-5"), "End: '-5' is no time"),
            (record(2, elapsed="-1"), "ElapsedRaw: '-1' is no whole number"),
            (record(2, elapsed="00:01:00"), "ElapsedRaw: '00:01:00' is no whole number"),
            (record(2, limit="1-00:00:00"), "TimelimitRaw: '1-00:00:00' is no whole number"),
            (record(2, cpus=""), "AllocCPUS: '' is no whole number"),
            (record(2, cpus=20_000_001), "AllocCPUS: 20000001 is more than 20,000,000"),
            (record(2, elapsed=10**11), "ElapsedRaw: 100000000000 is more than 10,000,000,000"),
            (record(2, limit=10**9), "TimelimitRaw: 1000000000 is more than 166,666,666"),
            (record(2, submit=1795240438000), "Submit: 1795240438000 is more than 10,000,000,000"),
            (record(2, state=""), "no state"),
            (record(1), "its job number stood in a record before"),
        ],
    )
    def test_malformed_lines(self, tmp_path: Path, line: str, why: str) -> None:
        path = written(tmp_path, record(1), "\n", line, record(3, state=" "))
        loaded = load_trace(path)
        assert loaded.workload.job_id.tolist() == [1, 3]
        assert loaded.report.malformed == (Malformed("line 3", why),)
        assert loaded.report.records == 3
        with pytest.raises(ConfigError, match="1 malformed: line 3"):
            load_trace(path, ReadOptions(strict=True))

    def test_what_cannot_be_replayed(self, tmp_path: Path) -> None:
        lines = [
            record(1),
            record(2, start="Unknown", end="Unknown", state="PENDING"),
            record(3, start="None", state="CANCELLED by 7"),
            record(4, end="Unknown", state="RUNNING"),
            record(5, cpus=0),
        ]
        report = load_trace(written(tmp_path, *lines)).report
        assert report.dropped == (
            ("no start (never ran, or waits)", 2),
            ("no end (still runs)", 1),
            ("no CPUs", 1),
        )
        assert report.kept == 1
        with pytest.raises(ConfigError, match=r"no record that can be replayed; left out: 1 with no end"):
            load_trace(written(tmp_path, lines[3]))
        with pytest.raises(ConfigError, match="no record that can be replayed"):
            load_trace(written(tmp_path, ""))

    def test_a_job_that_came_back_twice_is_one_job(self, tmp_path: Path) -> None:
        lines = [
            record(1, submit=3000, elapsed=7, comment="omfs:method=suspend"),
            record(1, submit=1000, state="REQUEUED"),
            record(1, submit=2000, state="NODE_FAIL"),
            record(2, submit=1500),
        ]
        loaded = load_trace(written(tmp_path, *lines), ReadOptions(rules=RULES))
        jobs = loaded.workload
        assert (jobs.job_id.tolist(), jobs.submit.tolist(), jobs.run.tolist()) == ([1, 2], [0, 500], [7, 60])
        assert jobs.mode[0] == PreemptMode.SWAP
        assert (loaded.report.records, loaded.report.kept) == (4, 2)

    def test_unknown_limits_and_accounts(self, tmp_path: Path) -> None:
        lines = [record(n, limit=limit) for n, limit in enumerate(("UNLIMITED", "Partition_Limit", "", "5"))]
        jobs = load_trace(written(tmp_path, *lines, record(9, account=""))).workload
        assert jobs.limit.tolist() == [inf, inf, inf, 300, 120]
        assert jobs.accounts == ("", "bio")


STAND_IN = """\
#!{python}
import sys
import time
from pathlib import Path
here = Path(__file__).parent
(here / "arguments").write_text("\\n".join(sys.argv[1:]))
separator = next(word.partition("=")[2] for word in sys.argv if word.startswith("--delimiter="))
print((here / "answer").read_text().replace("\\0", separator), end="")
"""


class Accounting:
    """An executable of the name sacct that prints given text; NUL stands for the separator."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        program = directory / "sacct"
        program.write_text(STAND_IN.format(python=sys.executable))
        program.chmod(0o755)

    def prints_records(self, *records: list[str]) -> None:
        self.prints("".join("\0".join(record) + "\n" for record in records))

    def prints(self, text: str) -> None:
        (self._directory / "answer").write_text(text)

    @property
    def asked(self) -> list[str]:
        return (self._directory / "arguments").read_text().split("\n")


@pytest.fixture
def accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Accounting:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Accounting(tmp_path / "bin")


ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"), max_size=30)


class TestAsking:
    def test_the_command(self, accounting: Accounting) -> None:
        accounting.prints_records(fields(1))
        sacct.ask(0, 86400, None, ReadOptions())
        *options, begin_word, begin, end_word, end, separator, form = accounting.asked
        assert options == ["-a", "-X", "-P", "-n", "-D"]
        assert (begin_word, end_word) == ("--starttime", "--endtime")
        assert [datetime.fromisoformat(time).timestamp() for time in (begin, end)] == [0, 86400]
        assert separator.startswith("--delimiter=<") and len(separator) > 40
        assert form.startswith("--format=JobIDRaw,") and form.endswith(",State,Comment")

    @given(comments=st.lists(ANY_TEXT | st.just("a\n99|99|1000|1010|1070|60|2|1|x|main|urgent|COMPLETED|"), min_size=1))
    def test_no_comment_breaks_or_forges_a_record(self, accounting: Accounting, comments: list[str]) -> None:
        accounting.prints_records(*(fields(number, comment=text) for number, text in enumerate(comments, start=1)))
        loaded = sacct.ask(0, 86400, None, ReadOptions(rules=RULES, strict=True))
        assert loaded.workload.job_id.tolist() == list(range(1, len(comments) + 1))
        assert not loaded.workload.urgent.any()

    def test_a_method_behind_a_newline_counts(self, accounting: Accounting) -> None:
        accounting.prints_records(fields(1, comment="first\nomfs:method=suspend"), fields(2))
        jobs = sacct.ask(0, 86400, None, ReadOptions(rules=RULES)).workload
        assert jobs.mode.tolist() == [PreemptMode.SWAP, PreemptMode.KILL]

    def test_jobs_of_before_the_period_are_left_out(self, accounting: Accounting) -> None:
        accounting.prints_records(fields(1, submit=999), fields(2, submit=1000))
        loaded = sacct.ask(1000, 86400, None, ReadOptions())
        assert loaded.workload.job_id.tolist() == [2]
        assert loaded.report.dropped == (("a submission before the period", 1),)

    def test_malformed_records_have_numbers(self, accounting: Accounting) -> None:
        accounting.prints_records(fields(1), fields(2, cpus="many"))
        report = sacct.ask(0, 86400, None, ReadOptions()).report
        assert report.malformed == (Malformed("record 2", "AllocCPUS: 'many' is no whole number"),)
        with pytest.raises(ConfigError, match="sacct: 1 malformed: record 2"):
            sacct.ask(0, 86400, None, ReadOptions(strict=True))

    def test_half_an_answer_is_none(self, accounting: Accounting) -> None:
        accounting.prints("\0".join(fields(1)) + "\n2\x002")
        with pytest.raises(ParseError, match="sacct printed a part of a job"):
            sacct.ask(0, 86400, None, ReadOptions())

    def test_nothing_recorded(self, accounting: Accounting) -> None:
        accounting.prints("")
        with pytest.raises(ConfigError, match="sacct: no record that can be replayed"):
            sacct.ask(0, 86400, None, ReadOptions())

    def test_no_sacct(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(GatewayError, match="cannot run sacct"):
            sacct.ask(0, 86400, None, ReadOptions())
