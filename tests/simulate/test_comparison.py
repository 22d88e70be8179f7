"""What a change of the configuration would have done, on workloads small enough to work out by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from omfs_daemon.accounting.sacct_query import sacct_arguments
from omfs_daemon.cli.main import app
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.simulate.comparison import (
    Account,
    Difference,
    Side,
    compare,
    comparison_conventions,
    difference,
    replayed,
)
from omfs_daemon.simulate.overrides import changed_lines, in_force, with_overrides
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload
from tests.support.omfs_scenarios import tree
from tests.unit.cli.test_cli import Site

NAMES = ("bio", "physics", "stranger")


def jobs(*rows: tuple[str, float, float], urgent: int | None = None) -> Workload:
    """Of one CPU each, killed when preempted: account, submission, run time; ``urgent``: the number of one from 0."""
    owner, submit, run = zip(*rows, strict=True)
    chosen = np.arange(len(rows)) == urgent
    return workload(
        "hand",
        np.array(submit),
        np.ones(len(rows), dtype=np.int64),
        np.array(run),
        accounts=NAMES,
        limit=np.array(run),
        account=np.array([NAMES.index(name) for name in owner]),
        urgent=chosen,
        mode=np.where(chosen, PreemptMode.NEVER, PreemptMode.KILL),
    )


# Two CPUs. Bio takes both at 0 and waits for more from 5 on; physics comes at 10.
BACKLOG = jobs(("bio", 0, 100), ("bio", 0, 100), ("bio", 5, 100), ("physics", 10, 100))


def side(work: Workload, policy: str = "omfs", quantum: float = 0, cpus: int = 2, **percents: float) -> Side:
    return Side(
        replayed(work, cpus, Rules(tree=tree(**percents), quantum=quantum, methods=BUILT_IN_TRAITS, unmatched=REGULAR)),
        policy_named(policy),
    )


def of(found: Difference, name: str) -> tuple[Account, Account]:
    (row,) = [row for row in found.accounts if row.account == name]
    return row.before, row.after


class TestCompare:
    def test_a_raised_entitlement_shortens_its_waits_and_lengthens_the_others(self) -> None:
        """Without a share physics waits until 100; with one it preempts a job of bio at 10, which has run for 10 s. It
        starts over at 100, so bio's third job starts when physics ends, at 110."""
        found = compare(side(BACKLOG, bio=100), side(BACKLOG, bio=50, physics=50))
        before, after = of(found, "physics")
        assert (before.wait, after.wait) == (90, 0)
        assert (before.owned, after.owned) == (0, 1)
        before, after = of(found, "bio")
        assert (before.wait, after.wait) == (pytest.approx(95 / 3), 35)
        assert (before.response, after.response) == (pytest.approx(395 / 3), pytest.approx((100 + 200 + 205) / 3))
        assert (before.preemptions, after.preemptions) == (0, 1)
        assert (before.lost_cpu_hours, after.lost_cpu_hours) == (0, pytest.approx(10 / 3600))
        assert (found.before.wait, found.after.wait) == (185 / 4, 105 / 4)
        assert (found.before.makespan, found.after.makespan) == (200, 210)
        assert found.after.utilisation == pytest.approx(410 / 420)
        assert found.after.productive_utilisation == pytest.approx(400 / 420)
        assert (found.before.preemptions, found.after.preemptions) == (0, 1)

    def test_a_shorter_quantum_raises_preemptions(self) -> None:
        found = compare(side(BACKLOG, quantum=1800, bio=50, physics=50), side(BACKLOG, bio=50, physics=50))
        assert difference(found.before, found.after).preemptions == 1
        before, after = of(found, "physics")
        assert (before.wait, after.wait) == (90, 0)
        assert (before.below_hours, after.below_hours) == (pytest.approx(90 / 3600), 0)

    def test_another_policy(self) -> None:
        found = compare(side(BACKLOG, bio=50, physics=50), side(BACKLOG, "partition", bio=50, physics=50))
        before, after = of(found, "bio")
        assert (before.wait, after.wait) == (35, pytest.approx((0 + 100 + 195) / 3))
        assert (found.before.preemptions, found.after.preemptions) == (1, 0)

    def test_shares_are_counted_up_to_the_last_submission(self) -> None:
        """Of 2 * 50 CPU-seconds. Undisturbed, bio holds both CPUs until 40, then one of them goes to physics.
        Disturbed, physics has one from 10 on, and bio all the rest."""
        work = jobs(("bio", 0, 40), ("bio", 0, 100), ("physics", 10, 100), ("stranger", 50, 1))
        found = compare(side(work, quantum=1800, bio=50, physics=50), side(work, bio=50, physics=50))
        before, after = (of(found, name) for name in ("bio", "physics"))
        assert [round(row.share, 9) for row in before] == [0.9, 0.6]
        assert [round(row.share, 9) for row in after] == [0.1, 0.4]

    def test_no_share_without_a_time(self) -> None:
        work = jobs(("bio", 0, 10), ("physics", 0, 10))
        found = compare(side(work, bio=50), side(work, bio=60))
        assert all(isnan(row.before.share) for row in found.accounts)
        assert found.as_json()["accounts"][0]["before"]["share"] is None

    def test_a_row_has_the_same_jobs_on_both_sides(self) -> None:
        """Accounts that are not named count under (others); one that gets a share leaves them, on both sides."""
        work = jobs(("bio", 0, 10), ("physics", 0, 10), ("stranger", 0, 10), ("stranger", 1, 10))
        for one, other in (({"bio": 50}, {"bio": 50, "physics": 50}), ({"bio": 50, "physics": 50}, {"bio": 50})):
            found = compare(side(work, **one), side(work, **other))
            counted = {row.account: (row.before.jobs, row.after.jobs) for row in found.accounts}
            assert counted == {"bio": (1, 1), "physics": (1, 1), "(others)": (2, 2)}
            owned = {row.account: {row.before.owned, row.after.owned} for row in found.accounts}
            assert owned == {"bio": {1}, "physics": {0, 1}, "(others)": {0, 1}}

    def test_urgent_jobs_have_their_own_lines(self) -> None:
        """Under FCFS the urgent job waits for 90 s to run 10 s; omfs preempts a job for it at once."""
        work = jobs(("bio", 0, 100), ("bio", 0, 100), ("physics", 10, 10), urgent=2)
        found = compare(side(work, "fcfs", bio=50), side(work, bio=50))
        assert (found.before.urgent_wait, found.after.urgent_wait) == (90, 0)
        assert (found.before.u_l, found.after.u_l) == (10, 1)
        assert found.as_json()["total"]["difference"]["U_L"] == -9

    def test_refused_jobs_are_counted_and_reported(self) -> None:
        wide = workload("wide", np.zeros(1), np.array([2]), np.ones(1), accounts=("bio",))
        one, other = side(wide, bio=50), side(wide, "partition", bio=50)
        found = compare(one, other)
        assert (found.before.rejected, found.after.rejected) == (0, 1)
        assert isnan(found.after.wait)
        before, after = of(found, "bio")
        assert (before.jobs, before.rejected, before.wait) == (1, 0, 0)
        assert (after.jobs, after.rejected) == (0, 1) and isnan(after.wait)
        assert any("not the same jobs are refused" in text for text in comparison_conventions(one, other, found))

    def test_conventions_say_what_differs(self) -> None:
        one, other = side(BACKLOG, quantum=60, bio=50), side(BACKLOG, quantum=5, bio=50)
        sentences = comparison_conventions(one, other, compare(one, other))
        assert "before: a job runs 60 s before it may be preempted for an entitled one" in sentences
        assert "after: a job runs 5 s before it may be preempted for an entitled one" in sentences
        assert sum("entitlements: bio" in text for text in sentences) == 1
        assert not any("not the same jobs" in text for text in sentences)

    def test_both_sides_need_one_workload_and_one_machine(self) -> None:
        with pytest.raises(ValueError, match="the same workload and the same machine"):
            compare(side(BACKLOG), side(jobs(("bio", 0, 1))))
        with pytest.raises(ValueError, match="the same workload and the same machine"):
            compare(side(BACKLOG), side(BACKLOG, cpus=3))

    def test_is_the_same_every_time(self) -> None:
        sides = side(BACKLOG, bio=30, physics=20), side(BACKLOG, "easy", bio=50)
        assert compare(*sides).as_json() == compare(*sides).as_json()


TWO = parse_config("[entitlements.bio]\npercent = 50\n[entitlements.physics]\npercent = 20.5\n", "two")


class TestChanged:
    @pytest.mark.parametrize(
        ("overrides", "sentences"),
        [
            (["entitlements.physics=40"], ["entitlements.physics: 20.5 % -> 40 %"]),
            (["entitlements.physics = 12.5"], ["entitlements.physics: 20.5 % -> 12.5 %"]),
            (["entitlements.physics.percent=40"], ["entitlements.physics: 20.5 % -> 40 %"]),
            (["entitlements.new=29.5"], ["entitlements.new: none -> 29.5 %"]),
            (["entitlements.physics.parent=bio"], ["entitlements.physics: 20.5 % -> 20.5 % of bio"]),
            (['entitlements."a.b"=1'], ["entitlements.a.b: none -> 1 %"]),
            (["policy.quantum_seconds=600"], ["policy.quantum_seconds: 1800.0 -> 600.0"]),
            (["policy.urgent_may_take_entitled=false"], ["policy.urgent_may_take_entitled: true -> false"]),
            (
                ["entitlements.bio=10", "entitlements.physics=90", "policy.max_preemptions_per_hour=1"],
                [
                    "policy.max_preemptions_per_hour: 4 -> 1",
                    "entitlements.bio: 50 % -> 10 %",
                    "entitlements.physics: 20.5 % -> 90 %",
                ],
            ),
            (["entitlements.bio=50"], []),
        ],
    )
    def test_what_is_set(self, overrides: list[str], sentences: list[str]) -> None:
        assert list(changed_lines(TWO, with_overrides(TWO, overrides))) == sentences

    def test_all_else_stays(self) -> None:
        base = parse_config('[slurm]\ntimeout_seconds = 3\n[[class]]\nname = "all"\n', "base")
        after = with_overrides(in_force(base, TWO.all_entitlements), ["entitlements.bio=1"])
        assert (after.slurm, after.classes) == (base.slurm, base.classes)
        assert [str(entitlement.percent) for entitlement in after.all_entitlements] == ["1", "41/2"]

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("nonsense", "--set 'nonsense': must be KEY=VALUE, such as entitlements.physics=40"),
            ("=4", "--set '=4': must be KEY=VALUE, such as entitlements.physics=40"),
            ("policy.quantum_seconds=", "must be KEY=VALUE"),
            ("policy.quantum_seconds=1\npolicy.rank_depth=1", "must be KEY=VALUE"),
            ("a b=4", "--set 'a b=4': 'a b' must be a key such as entitlements.physics"),
            ("policy.quantum_seconds=soon", "--set: policy.quantum_seconds = 'soon': must be a number"),
            ("policy.quantum_seconds=-1", "--set: policy.quantum_seconds = -1: must be greater than or equal to 0"),
            ("policy.quantum=5", "--set: policy.quantum = 5: unknown key; did you mean 'quantum_seconds'?"),
            ("politics=5", "--set: politics = 5: unknown key; did you mean 'policy'?"),
            ("policy=5", "--set: policy = 5: must be a table"),
            ("entitlements.bio=much", "--set: entitlements.bio.percent = 'much': must be a number from 0 to 100"),
            (
                "entitlements.physics=60",
                "--set: the accounts at the top add up to 110 %: at most 100 (bio 50, physics 60)",
            ),
            ("entitlements.new.parent=bio", "--set: entitlements.new: needs percent or cpus"),
            ("slurm.timeout_seconds=5", "--set slurm.timeout_seconds: no simulation goes by it; those that count: pol"),
            ("policy.rank_depth=5", "--set policy.rank_depth: no simulation goes by it; those that count: policy.qua"),
            ("class=[]", "--set class: no simulation goes by it; those that count: policy.quantum_seconds, "),
        ],
    )
    def test_faults_are_one_line(self, override: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            with_overrides(TWO, [override])
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_the_keys_that_count_are_real_ones(self) -> None:
        with pytest.raises(ConfigError) as caught:
            with_overrides(Config(), ["slurm.poll_seconds=1"])
        *policy, percent, cpus, parent = str(caught.value).partition("count: ")[2].split(", ")
        for key in policy:
            name = key.removeprefix("policy.")
            with_overrides(Config(), [f"{key}={str(getattr(Config().policy, name)).lower()}"])
        with_overrides(Config(), [f"{percent}=5", f"{parent}=''"])
        with_overrides(Config(), [f"{cpus}=5", f"{parent}=''"])


HEADER = "; MaxProcs: 2\n"
# job, submit, wait, run, processors, -, -, processors asked, seconds asked, -, status, user, group, -, queue, -, -, -
SWF = "".join(
    f"{number} {submit} -1 100 1 -1 -1 1 100 -1 1 1 {group} -1 0 -1 -1 -1\n"
    for number, (submit, group) in enumerate([(0, 1), (0, 1), (5, 1), (10, 2)], start=1)
)
SACCT = "".join(
    f"{number}|{number}|{1000 + submit}|1|2|100|2|1|{account}|main|normal|COMPLETED|\n"
    for number, (submit, account) in enumerate([(0, "bio"), (0, "bio"), (5, "bio"), (10, "physics")], start=1)
)
STAND_IN = """\
#!{python}
import sys
separator = next(word.partition("=")[2] for word in sys.argv if word.startswith("--delimiter="))
for line in {records!r}.splitlines():
    print(line.replace("|", separator))
"""
NODES = """\
#!/bin/sh
echo 'NodeName=n1 CPUAlloc=0 CPUEfctv=1 CPUTot=1 State=IDLE RealMemory=100 AllocMem=0'
echo 'NodeName=n2 CPUAlloc=0 CPUEfctv=1 CPUTot=1 State=DOWN RealMemory=100 AllocMem=0'
"""
CLASSES = '[[class]]\nname = "all"\ndefault = ["requeue"]\n'


class Offline:
    """A directory with a configuration, traces and the only programs that can be found; no daemon."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.config = directory / "omfs.toml"
        monkeypatch.setenv("PATH", str(directory / "bin"))
        (directory / "bin").mkdir()
        (directory / "site.swf").write_text(HEADER + SWF)
        (directory / "site.sacct").write_text(SACCT)
        self.configure("[policy]\nquantum_seconds = 0\n", "[entitlements.bio]\npercent = 100\n", CLASSES)

    def configure(self, *text: str) -> None:
        places = f'[daemon]\nrun_dir = "{self.directory}"\nstate_dir = "{self.directory}"\n'
        self.config.write_text("".join((places, *text)))

    def program(self, name: str, text: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def whatif(self, *words: str) -> Result:
        words = tuple(word.replace("DIR", str(self.directory)) for word in words)
        return CliRunner().invoke(app, ["-c", str(self.config), "whatif", *words])

    def json(self, *words: str) -> dict:
        result = self.whatif(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offline:
    return Offline(tmp_path, monkeypatch)


@pytest.fixture
def online(offline: Offline) -> Iterator[Site]:
    """The same with a daemon that has bio's entitlement at 50 %."""
    made = Site(offline.directory)
    with ControlServer(offline.directory / "omfs.sock", made.handler, operators(None, None), peer=lambda _: made.peer):
        yield made


GIVE = ("--set", "entitlements.bio=50", "--set", "entitlements.physics=50")
ACCOUNTING = ("--trace", "DIR/site.sacct", "--procs", "2")


class TestCommand:
    def test_a_saved_answer_of_sacct(self, offline: Offline) -> None:
        found = offline.json(*ACCOUNTING, *GIVE)
        assert found["workload"] == "site.sacct"
        assert found["changes"] == ["entitlements.bio: 100 % -> 50 %", "entitlements.physics: none -> 50 %"]
        accounts = {row["account"]: row for row in found["accounts"]}
        assert [accounts["physics"][when]["wait"] for when in ("before", "after", "difference")] == [90, 0, -90]
        assert accounts["bio"]["difference"]["preemptions"] == found["total"]["difference"]["preemptions"] == 1
        assert "CPUs of the machine: 2, as asked for" in found["conventions"]
        assert any("by the classes of the configuration" in text for text in found["conventions"])

    def test_for_people(self, offline: Offline) -> None:
        printed = offline.whatif(*ACCOUNTING, *GIVE)
        assert printed.exit_code == 0
        lines = [" ".join(line.replace("│", " ").split()) for line in printed.stdout.splitlines()]
        assert lines[0] == "site.sacct: what if entitlements.bio: 100 % -> 50 %; entitlements.physics: none -> 50 %"
        assert "preemptions 0 1 +1" in lines
        assert "physics (1 jobs) CPUs owned 0 1 +1" in lines
        assert "mean wait 90.0 s 0.0 s -90.0 s" in lines
        assert "makespan 3.3 min 3.5 min +0.2 min" in lines
        assert "refused 0 0 0" in lines
        assert "utilisation 100.00 % 97.62 % -2.38 points" in lines
        assert "- site.sacct: 4 records, 4 kept" in lines
        assert "- jobs end at their limit at the latest" in lines

    def test_any_trace(self, offline: Offline) -> None:
        found = offline.json("--trace", "DIR/site.swf", "--policy", "easy")
        assert found["changes"] == ["policy: omfs -> easy"]
        assert [row["account"] for row in found["accounts"]] == ["bio", "(others)"]
        assert found["accounts"][1]["before"]["jobs"] == 4
        assert "CPUs of the machine: 2, as the trace's header says" in found["conventions"]
        assert any("as the trace says; where it does not" in text for text in found["conventions"])

    def test_slurm_itself_is_asked(self, offline: Offline) -> None:
        offline.program("sacct", STAND_IN.format(python=sys.executable, records=SACCT))
        offline.program("scontrol", NODES)
        found = offline.json("--since", "1970-01-01T00:10+00:00", "--until", "1970-01-02T00:00+00:00", *GIVE)
        assert found["total"]["difference"]["preemptions"] == 1
        assert "CPUs of the machine: 2 on 2 nodes, as Slurm has them now" in found["conventions"]

    def test_the_daemons_entitlements_go_before_the_files(self, offline: Offline, online: Site) -> None:
        offline.configure("[policy]\nquantum_seconds = 0\n", "[entitlements.bio]\npercent = 7\n", CLASSES)
        found = offline.json(*ACCOUNTING, "--set", "entitlements.bio=60")
        assert found["changes"] == ["entitlements.bio: 50 % -> 60 %"]
        assert "entitlements before: as omfsd has them now (configuration file)" in found["conventions"]
        assert [str(entitlement.percent) for entitlement in online.store.entitlements] == ["50"]

    def test_changed_entitlements_hold_without_the_daemon_too(self, offline: Offline) -> None:
        kept = offline.directory / "entitlements.toml"
        kept.write_text("format = 1\n[entitlements.bio]\npercent = 33\n")
        found = offline.json(*ACCOUNTING, "--set", "entitlements.bio=60")
        assert found["changes"] == ["entitlements.bio: 33 % -> 60 %"]
        assert f"entitlements before: of {kept}, for omfsd does not answer" in found["conventions"]

    def test_entitlements_that_cannot_be_seen_are_reported(
        self, offline: Offline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def denied(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr("omfs_daemon.cli.simulation.whatif.EntitlementStore", denied)
        found = offline.json(*ACCOUNTING, "--set", "entitlements.bio=60")
        assert found["changes"] == ["entitlements.bio: 100 % -> 60 %"]
        assert any("does not answer; those changed since, in" in text for text in found["conventions"])

    def test_writes_nothing(self, offline: Offline, online: Site) -> None:
        def files() -> dict[str, bytes]:
            return {str(path): path.read_bytes() for path in offline.directory.rglob("*") if path.is_file()}

        before = files()
        offline.json(*ACCOUNTING, "--set", "entitlements.bio=60")
        assert files() == before

    def test_malformed_lines_are_reported_or_refused(self, offline: Offline) -> None:
        (offline.directory / "site.sacct").write_text(SACCT + "half a line\n")
        words = (*ACCOUNTING, "--policy", "fcfs")
        assert "left out: 1 malformed: line 5 (1 fields, not 13)" in offline.json(*words)["conventions"]
        refused = offline.whatif(*words, "--strict")
        assert refused.exit_code == 2
        assert refused.stderr.endswith("site.sacct: 1 malformed: line 5 (1 fields, not 13)\n")

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (ACCOUNTING, "nothing to compare: --set KEY=VALUE or --policy NAME is needed"),
            ((*ACCOUNTING, "--policy", "omfs"), "nothing to compare: --set and --policy leave everything as it is"),
            ((*ACCOUNTING, "--policy", "best"), "policy 'best' is not known: one of fcfs, "),
            ((*ACCOUNTING, "--set", "policy.quantum=5"), "unknown key; did you mean 'quantum_seconds'?"),
            (GIVE, "either --trace FILE or --since TIME is needed, and not both"),
            ((*ACCOUNTING, *GIVE, "--since", "3d"), "either --trace FILE or --since TIME is needed, and not both"),
            ((*ACCOUNTING, *GIVE, "--until", "3d"), "--until goes with --since: a trace is replayed whole"),
            ((*GIVE, "--since", "soon"), "--since = 'soon': must be such as 30m, 6h, 2d or 2026-03-01T14:00"),
            ((*GIVE, "--since", "3d", "--until", "soon"), "--until = 'soon': must be such as 30m, 6h, 2d or 2026-"),
            ((*GIVE, "--since", "3d", "--until", "4d"), "--since = '3d': must be before --until = '4d'"),
            ((*GIVE, "--trace", "DIR/site.txt"), "site.txt: the name must end in .swf, "),
            ((*GIVE, "--trace", "DIR/none.sacct"), "none.sacct: no such file"),
            ((*GIVE, *ACCOUNTING[:2]), "--procs is needed: neither the trace nor Slurm says it (cannot run scontrol"),
        ],
    )
    def test_faults_are_one_line(self, offline: Offline, words: tuple[str, ...], message: str) -> None:
        result = offline.whatif(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
        assert result.stderr.startswith("omfs: ") and result.stderr.count("\n") == 1

    def test_an_accounting_that_does_not_answer(self, offline: Offline) -> None:
        offline.program("sacct", "#!/bin/sh\necho 'sacct: error: Problem talking to the database' >&2\nexit 1\n")
        result = offline.whatif(*GIVE, "--since", "3d", "--procs", "2")
        assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
        assert "exit 1: sacct: error: Problem talking to the database" in result.stderr

    def test_names_of_accounts_cannot_forge_the_terminal(self, offline: Offline) -> None:
        (offline.directory / "site.sacct").write_text(SACCT.replace("physics", "\x1b[2Jevil"))
        result = offline.whatif(*ACCOUNTING, "--set", 'entitlements."\\u001b[2Jevil"=0')
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout and "[2Jevil" in result.stdout

    def test_teaches_an_example_and_the_command(self) -> None:
        shown = CliRunner().invoke(app, ["whatif", "--help"]).stdout
        assert "Example: omfs whatif --set entitlements.physics=40 --since 30d" in shown
        command = "".join(line.strip().removesuffix("\\") for line in shown.splitlines())
        words = sacct_arguments(0, 1, "|")
        *options, fields = [word for word in words if word[:3] in ("-a", "-X", "-P", "-n", "-D", "--f")]
        assert f"SLURM_TIME_FORMAT=%s sacct {' '.join(options)} -S BEGIN -E END {fields} > FILE.sacct" in command
