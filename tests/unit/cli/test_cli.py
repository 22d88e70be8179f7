"""``omfs`` and ``omfsd`` as people and scripts call them, against a real control socket."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from omfs_daemon import __version__
from omfs_daemon.cli.check import all_findings
from omfs_daemon.cli.check_realtime import check_realtime
from omfs_daemon.cli.check_site import host_findings
from omfs_daemon.cli.main import app
from omfs_daemon.cli.omfsd import app as daemon_app
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.entitlement_text import to_rows
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.callers import Caller, Peer, operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.api.entitlements_view import EntitlementsView
from omfs_daemon.daemon.api.history_view import HistoryView
from omfs_daemon.daemon.api.operations import DoneView
from omfs_daemon.daemon.api.plan_difference_view import PlanDifferenceView
from omfs_daemon.daemon.api.plan_view import PlanView
from omfs_daemon.daemon.api.status_view import PairView, StatusView
from omfs_daemon.daemon.api.why_view import WhyView, listed_job
from omfs_daemon.daemon.leadership.standby_answers import StandbyAnswers
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore, apply_change
from omfs_daemon.errors import ControlError, GatewayTimeout
from omfs_daemon.slurm.gateway import AccountRow, SlurmSettings
from omfs_daemon.slurm.settings_check import Finding, Level, passed
from omfs_daemon.slurm.submit_plugin import PlugIn, installed_plug_in, plug_in_settings, watched_heartbeat
from tests.support.hostile_text import HOSTILE_TOML
from tests.support.waiting import LIMIT

HOSTILE = "[red]\x1b[2J\u202eevil"

STATUS: StatusView = {
    "version": "0.1.0",
    "time": 1000.0,
    "gateway": "commands",
    "slurm_version": "22.05.8",
    "paused": {"by": "ann", "since": 900.0, "reason": HOSTILE},
    "dry_run": True,
    "last_poll": 999.0,
    "last_error": None,
    "summary": "physics takes back 8 CPUs from bio",
    "cluster": {"nodes": 4, "nodes_up": 4, "cpus": 16, "cpus_shared": 15, "cpus_used": 16, "cpus_idle": 0},
    "accounts": [
        {
            "account": name,
            "parent": parent,
            "percent": 50.0,
            "entitled": 7,
            "used": 8,
            "borrowed": 0,
            "lent": 0,
            "pending": 0,
        }
        for name, parent in (("lab", "bio"), ("bio", ""), ("(others)", ""))
    ],
    "preemptions_under_way": [
        {
            "preemptor": "9",
            "account": "physics",
            "urgent": True,
            "step": "stopping",
            "victims": [{"job": "7", "method": "requeue"}],
            "since": 998.0,
        }
    ],
    "preempted": [{"job": "7", "method": "requeue", "since": 998.0, "for": "9"}],
    "held": 9,
    "held_jobs": [
        {"job": "15_[25-32]", "user": "ann", "account": "bio", "tasks": 8, "cpus": 2},
        {"job": "18", "user": "eve", "account": HOSTILE, "tasks": 1, "cpus": 16},
    ],
    "set_aside": 101,
    "set_aside_jobs": [{"job": "17", "user": "eve", "why": HOSTILE}],
    "scope": "partitions main",
    "not_in_scope": 3,
    "bounds": {"kept": 41, "missed": 2},
    "entitlements_source": "configuration file",
}
PLAN: PlanView = {
    "time": 1000.0,
    "summary": "would preempt one job",
    "actions": [
        {
            "kind": "preempt",
            "job": "9",
            "account": "physics",
            "reason": "entitled",
            "numbers": {"cpus": 8.0},
            "victims": [{"job": "7", "account": "bio", "method": "requeue"}],
        }
    ],
    "refused": [{"kind": "preempt", "job": "8", "account": "x", "reason": HOSTILE, "numbers": {}}],
}
WHY: WhyView = {
    "job": "7",
    "user": "ann",
    "account": "bio",
    "class": "scratch",
    "state": "PENDING",
    "now": "waits until job 9 runs",
    "realtime": None,
    "methods": [
        {"method": "dmtcp", "preempt_seconds": 3.0, "resume_seconds": 8.0, "lost_seconds": 0.0, "why_not": "x\x1b[31m"}
    ],
    "events": [{"time": 998.0, "job": "7", "event": "preempted", "text": HOSTILE, "data": {}}],
}
HISTORY: HistoryView = {
    "preemptions": [
        {
            "time": 998.0,
            "preemptor": "9",
            "account": "physics",
            "urgent": False,
            "reason": "entitled",
            "victims": [{"job": "7", "account": "bio", "method": "requeue", "preempted": False}],
            "waited_seconds": 0.4,
            "outcome": "done",
        }
    ]
}


PAIR: PairView = {"active": False, "host": "vm", "epoch": 1, "text": "omfsd on vm is active"}
STANDBY = StandbyAnswers("commands", "ctl", lambda: PAIR, lambda: 0.0)


class Stub:
    """A daemon without Slurm."""

    def __init__(self, store: EntitlementStore) -> None:
        self.store = store
        self.asked: list[tuple[object, ...]] = []

    def status(self, caller: Caller) -> StatusView:
        return STATUS

    def plan(self, caller: Caller) -> PlanView:
        return PLAN

    def plan_with(self, caller: Caller, text: str, source: str) -> PlanDifferenceView:
        return {
            "time": 1000.0,
            "summary_now": text,
            "summary_new": source,
            "only_now": [],
            "only_new": PLAN["actions"],
            "entitlements": [],
            "at_restart": ["daemon.user"],
        }

    def why(self, caller: Caller, job: str) -> WhyView:
        if job != "7":
            raise ControlError(f"job {job}: not known")
        return WHY

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        self.asked.append(("history", limit, since))
        return HISTORY

    def entitlements(self, caller: Caller) -> EntitlementsView:
        return {"source": self.store.source, "entitlements": to_rows(self.store.entitlements)}

    def change_entitlements(self, caller: Caller, change: dict[str, object]) -> EntitlementsView:
        changed = apply_change(self.store, change, caller)
        return {**self.entitlements(caller), "changed": changed}

    def pause(self, caller: Caller, reason: str) -> DoneView:
        return {"done": f"paused by {caller.user}: {reason}"}

    def resume(self, caller: Caller) -> DoneView:
        return {"done": "goes on"}

    def reload(self, caller: Caller) -> DoneView:
        return {"done": "reloaded"}


class Site:
    """A running stub daemon and its configuration file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.peer = Peer(0, 0)
        self.store = EntitlementStore(
            directory, (Entitlement("bio", Fraction(50)),), AuditLog(directory, lambda: 1000.0)
        )
        self.handler = Stub(self.store)
        self.config = directory / "omfs.toml"
        self.config.write_text(f'[daemon]\nrun_dir = "{directory}"\nstate_dir = "{directory}"\n')

    def omfs(self, *words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, ["-c", str(self.config), *words], input=stdin)

    def json(self, *words: str) -> Any:
        result = self.omfs(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with ControlServer(tmp_path / "omfs.sock", made.handler, operators(None, None), peer=lambda _: made.peer):
        yield made


# -- queries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "view"),
    [(["status"], STATUS), (["plan"], PLAN), (["why", "7"], WHY), (["history"], HISTORY)],
)
def test_json_is_the_view_itself(site: Site, words: list[str], view: object) -> None:
    assert site.json(*words) == view


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ["status"],
            [
                "PAUSED by ann",
                "dry run",
                "16 of 16 CPUs used",
                "physics takes back",
                "9 (urgent)",
                "7 (requeue)",
                "(the first 1)",
            ],
        ),
        (["plan"], ["would preempt one job", "7 of bio (requeue)", "cpus 8", "Refused by the validator"]),
        (["why", "7"], ["job 7 of ann in bio, class scratch, PENDING", "waits until job 9 runs"]),
        (["history"], ["entitled", "0.4 s", "done", "not preempted"]),
        (["entitlements", "list"], ["bio", "50", "the cluster"]),
    ],
)
def test_tables_for_people(site: Site, words: list[str], parts: list[str]) -> None:
    result = site.omfs(*words)
    assert result.exit_code == 0
    assert [part for part in parts if part not in result.stdout] == []


@pytest.mark.parametrize("words", [["status"], ["plan"], ["why", "7"], ["status", "--json"], ["why", "7", "--json"]])
def test_text_of_users_cannot_forge_the_terminal(site: Site, words: list[str]) -> None:
    output = site.omfs(*words).stdout
    assert "\x1b" not in output and "\u202e" not in output
    assert "[red]" in output


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (lambda caller: STANDBY.plan(caller), "omfsd on ctl stands by: ask on vm"),
        (lambda _: listed_job(CycleReport(0.0, ""), "7"), "Slurm has not answered yet: try again"),
    ],
)
def test_a_daemon_that_cannot_say_ends_with_3(
    site: Site, monkeypatch: pytest.MonkeyPatch, asked: Callable[[Caller], PlanView], text: str
) -> None:
    monkeypatch.setattr(site.handler, "plan", asked)
    monkeypatch.setattr(site.handler, "status", lambda _: {**STATUS, "slurm_version": ""})
    result = site.omfs("plan")
    assert (result.exit_code, result.stderr) == (3, f"omfs: {text}\n")
    assert "Slurm by commands; last poll" in site.omfs("status").stdout


def test_accounts_are_below_their_parents(site: Site) -> None:
    names = re.findall(r"│( +(?:bio|lab|\(others\))) ", site.omfs("status").stdout.partition("Held jobs")[0])
    assert names == [" bio", "   lab", " (others)"]


def test_history_takes_times(site: Site) -> None:
    assert site.omfs("history", "--since", "1970-01-02T00:00+00:00", "--limit", "3").exit_code == 0
    assert site.handler.asked == [("history", 3, 86400.0)]
    assert site.omfs("history", "--since", "soon").exit_code == 2
    assert site.omfs("history", "--limit", "0").exit_code == 2


# -- changing ----------------------------------------------------------------------------------------


def test_entitlements_are_set_removed_exported_imported(site: Site) -> None:
    assert site.omfs("entitlements", "set", "bio", "12.50").stdout == "bio: 50 % -> 12.5 %\n"
    assert site.omfs("entitlements", "set", "lab", "10", "--parent", "bio").stdout == "lab: none -> 10 % of bio\n"
    exported = site.omfs("entitlements", "export").stdout
    assert parse_config(exported, "export").all_entitlements == site.store.entitlements
    assert site.omfs("entitlements", "remove", "lab").stdout == "lab: 10 % of bio -> none\n"
    assert "lab: none -> 10 % of bio" in site.omfs("entitlements", "import", "-", stdin=exported).stdout
    assert site.omfs("entitlements", "import", "-", stdin=exported).stdout == "nothing changed\n"
    both = site.omfs("entitlements", "set", "bio", "cpus=3", "physics", "20").stdout
    assert both == "bio: 12.5 % -> 3 CPUs\nphysics: none -> 20 %\n"
    assert "cpus = 3" in site.omfs("entitlements", "export").stdout
    table = site.directory / "entitlements.csv"
    table.write_text("account,percent,parent\nphysics,70,\n")
    assert site.omfs("entitlements", "import", str(table)).exit_code == 0
    assert site.json("entitlements", "list")["entitlements"] == [{"account": "physics", "percent": "70", "parent": ""}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["entitlements", "set", "bio", "much"],
            "omfs: AMOUNT = 'much' of 'bio': must be a number from 0 to 100, or cpus=NUMBER\n",
        ),
        (
            ["entitlements", "set", "bio", "5", "x"],
            "omfs: x: an amount is missing: ACCOUNT AMOUNT, ACCOUNT AMOUNT, ...\n",
        ),
        (["entitlements", "remove", "x"], "omfs: account = 'x': must be one that has an entitlement: bio\n"),
        (["entitlements", "import", "none.toml"], "omfs: none.toml: cannot be read: No such file or directory\n"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(site: Site, words: list[str], message: str) -> None:
    result = site.omfs(*words)
    assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.parametrize("text", HOSTILE_TOML.values(), ids=HOSTILE_TOML)
def test_a_hostile_file_is_not_imported(site: Site, text: str) -> None:
    path = site.directory / "new.toml"
    path.write_text(text)
    for result in (
        site.omfs("entitlements", "import", str(path)),
        site.omfs("entitlements", "import", "-", stdin=text),
    ):
        assert result.exit_code == 2 and result.stderr.count("\n") == 1


def test_what_nobody_writes_is_not_waited_for(site: Site) -> None:
    pipe = site.directory / "pipe"
    os.mkfifo(pipe)
    for words in (["entitlements", "import"], ["plan", "--config"], ["config", "check"]):
        result = site.omfs(*words, str(pipe))
        assert (result.exit_code, result.stderr) == (2, f"omfs: {pipe}: is an empty pipe into which nobody writes\n")
        result = site.omfs(*words, "/dev/zero")
        assert (result.exit_code, result.stderr) == (2, "omfs: /dev/zero: is too long: must have at most 8 MiB\n")


def test_import_of_nothing_does_not_wipe_everything(site: Site) -> None:
    result = site.omfs("entitlements", "import", str(site.config))
    assert result.exit_code == 2 and "at least one entitlement" in result.stderr


def test_what_export_prints_without_entitlements_can_be_imported(site: Site) -> None:
    exported = site.omfs("entitlements", "export").stdout
    site.omfs("entitlements", "remove", "bio")
    none = site.omfs("entitlements", "export").stdout
    assert parse_config(none, "export").all_entitlements == ()
    site.omfs("entitlements", "import", "-", stdin=exported)
    assert site.omfs("entitlements", "import", "-", stdin=none).stdout == "bio: 50 % -> none\n"
    assert site.omfs("entitlements", "import", "-", stdin=none).stdout == "nothing changed\n"
    refused = site.omfs("entitlements", "import", "-", stdin="")
    assert refused.exit_code == 2 and "or an empty table [entitlements]" in refused.stderr


def test_pause_and_resume(site: Site) -> None:
    assert site.omfs("pause", "--reason", "maintenance").stdout == "paused by root: maintenance\n"
    assert site.omfs("resume").stdout == "goes on\n"


def test_exit_codes_for_refusal_no_and_silence(site: Site, tmp_path: Path) -> None:
    assert site.omfs("why", "8").exit_code == 1
    site.peer = Peer(12345, 12345)
    denied = site.omfs("pause")
    assert denied.exit_code == 4
    assert denied.stderr == "omfs: pause: only root, SlurmUser and operators may do this, not 12345\n"
    assert site.omfs("status").exit_code == 0
    silent = CliRunner().invoke(app, ["--socket", str(tmp_path / "none.sock"), "status"])
    assert silent.exit_code == 3
    assert silent.stderr.count("\n") == 1 and "Traceback" not in silent.output


def test_configuration_is_found_by_the_environment(site: Site) -> None:
    result = CliRunner().invoke(app, ["resume"], env={"OMFS_CONFIG": str(site.config)})
    assert result.stdout == "goes on\n"


def test_status_says_what_a_percentage_comes_to_while_nodes_are_away(site: Site) -> None:
    assert (
        "Entitlements are parts of 15 CPUs, those in scope on nodes that are up: bio 50 % = 7"
        in site.omfs("status").stdout
    )


@pytest.mark.parametrize(
    "text", ["not TOML", "[policy]\nno_such_key = 1", "[metrics]\nport = 'x'", *HOSTILE_TOML.values()]
)
def test_a_broken_configuration_disables_no_command_that_asks_the_daemon(site: Site, text: str, tmp_path: Path) -> None:
    socket = site.directory / "omfs.sock"
    site.config.write_text(f'[daemon]\nrun_dir = "{socket.parent}"\n{text}\n')
    assert site.omfs("status").exit_code == 0
    broken = tmp_path / "broken.toml"
    broken.write_text(text)
    for words in (
        ["--socket", str(socket), "status"],
        ["status", "--socket", str(socket)],
        ["status", f"--socket={socket}"],
    ):
        asked = CliRunner().invoke(app, ["-c", str(broken), *words])
        assert (asked.exit_code, asked.stderr) == (0, "")


def test_a_configuration_is_tried_on_paper(site: Site) -> None:
    new = site.directory / "new.toml"
    new.write_text("[policy]\nquantum_seconds = 7\n")
    tried = site.omfs("plan", "--config", str(new))
    assert "Done by the new configuration only" in tried.stdout and str(new) in tried.stdout
    assert site.json("plan", "--config", str(new))["only_now"] == []
    missing = site.omfs("plan", "--config", str(site.directory / "none"))
    assert (missing.exit_code, missing.stdout) == (2, "")
    new.write_text("#" * 100_001)
    long = site.omfs("plan", "--config", str(new))
    assert (long.exit_code, long.stderr) == (2, f"omfs: {new}: has 100,001 characters: must be at most 100,000\n")


# -- config ------------------------------------------------------------------------------------------


def test_config_commands_work_without_the_daemon(tmp_path: Path) -> None:
    runner = CliRunner()
    path = tmp_path / "omfs.toml"
    path.write_text(runner.invoke(app, ["config", "default"]).stdout)
    assert runner.invoke(app, ["config", "check", str(path)]).stdout == f"{path}: valid\n"
    shown = runner.invoke(app, ["-c", str(path), "config", "show"]).stdout
    assert parse_config(shown, "shown") == Config()
    as_json = runner.invoke(app, ["-c", str(path), "config", "show", "--json"]).stdout
    assert json.loads(as_json)["policy"]["rank_depth"] == 200
    path.write_text("[slurm]\npoll_second = 1")
    wrong = runner.invoke(app, ["config", "check", str(path)])
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        f"omfs: {path}: slurm.poll_second = 1: unknown key; did you mean 'poll_seconds'?\n",
    )
    assert runner.invoke(app, ["config", "check", str(tmp_path / "none")]).exit_code == 2


def test_every_command_has_an_example() -> None:
    runner = CliRunner()
    assert "Exit codes: 0" in runner.invoke(app, ["--help"]).stdout
    commands = ["status", "plan", "why", "history", "pause", "resume", "check", "demo", "failsafe", "release"]
    groups = [
        *(["entitlements", name] for name in ["list", "set", "remove", "import", "export"]),
        *(["config", name] for name in ["default", "show", "check"]),
        *(["exempt", name] for name in ["add", "remove", "list"]),
    ]
    for words in (*([name] for name in commands), *groups):
        help_text = runner.invoke(app, [*words, "--help"])
        assert help_text.exit_code == 0
        assert f"Example: omfs {'-c omfs.toml ' if words[-1] == 'show' else ''}{' '.join(words)}" in help_text.stdout


def test_daemon_refuses_a_wrong_file_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text("[metrics]\nport = 0")
    result = CliRunner().invoke(daemon_app, ["--config", str(path), "--log-format", "console"])
    assert (result.exit_code, result.stderr) == (2, f"omfsd: {path}: metrics.port = 0: must be greater than 0\n")


def test_a_fatal_line_is_json_where_the_log_is(tmp_path: Path) -> None:
    path = tmp_path / "omfs.toml"
    path.write_text("[metrics]\nport = 0")
    command = [sys.executable, "-c", "from omfs_daemon.cli.omfsd import run; run()", "-c", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    (line,) = ended.stderr.splitlines()
    assert (ended.returncode, json.loads(line)["event"]) == (2, "daemon_failed")
    assert "metrics.port = 0" in json.loads(line)["error"]


def test_both_say_their_versions() -> None:
    for one, name in ((app, "omfs"), (daemon_app, "omfsd")):
        assert CliRunner().invoke(one, ["--version"]).stdout == f"{name} {__version__}\n"


def test_commands_for_research_are_last_in_the_help() -> None:
    listed = re.findall(r"^  (\w+)  ", CliRunner().invoke(app, ["--help"]).stdout, re.MULTILINE)
    assert listed[0] == "status" and listed[-4:] == ["simulate", "sweep", "optimum", "experiment"]


# -- check -------------------------------------------------------------------------------------------


class FakeGateway:
    """Only what ``omfs check`` asks."""

    name = "fake"

    def __init__(self, settings: dict[str, str], up: bool = True) -> None:
        self._settings = settings
        self._up = up

    def settings(self) -> SlurmSettings:
        if not self._settings:
            raise GatewayTimeout("scontrol: no answer within 10 s")
        return SlurmSettings("22.05.8", self._settings)

    def nodes(self) -> list[Any]:
        return [Node("n1", 16, 1 << 30, up=self._up)]

    def accounts(self) -> list[AccountRow]:
        return [AccountRow("bio", "")]

    def partitions(self) -> list[Partition]:
        return [Partition("main")]


def findings_of(site: Site, gateway: Any) -> dict[str, Level]:
    from omfs_daemon.daemon.api.client import Client

    config = parse_config(site.config.read_text(), "omfs.toml")
    return {row.subject: row.level for row in all_findings(config, gateway, Client(config.daemon.socket))}


def test_check_covers_slurm_daemon_and_accounts(site: Site) -> None:
    found = findings_of(site, FakeGateway({"PriorityType": "priority/basic"}))
    assert found["PriorityType"] is Level.FAIL
    assert found["connection"] is Level.OK
    assert found["accounts"] is Level.OK
    assert found["omfsd"] is Level.WARN  # the stub is paused


def test_check_fails_where_two_omfsd_cannot_have_a_lease(site: Site, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    text = site.config.read_text().replace("[daemon]\n", f'[daemon]\nshared_directory = "{shared}"\n', 1)
    assert "shared_directory" in text

    def finding() -> Finding:
        found = host_findings(parse_config(text, "omfs.toml"))
        return next(one for one in found if one.subject == "shared_directory")

    gone = finding()
    assert (gone.level, gone.what) == (Level.FAIL, f"neither omfsd acts: {shared}: No such file or directory")
    shared.mkdir(mode=0o700)
    assert finding().level is Level.OK
    (shared / "lease.7.12~").touch()
    assert (finding().level, finding().fix) == (Level.FAIL, "remove it")
    shared.chmod(0o777)
    assert "must not be writable for others" in finding().what
    shared.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(shared, 1, 1)
        assert "belongs to uid 1, must be of omfsd's (0): mount it" in finding().what
        assert not passed([finding()])


def test_check_says_what_a_real_time_class_can_promise(site: Site) -> None:
    nodes, partitions = [Node("n1", 4, 58 * 400_000_000)], [Partition("beam"), Partition("main", max_time=60.0)]
    gateway = FakeGateway({"KillWait": "30"})
    gateway.nodes, gateway.partitions = lambda: nodes, lambda: partitions  # type: ignore[attr-defined,method-assign]
    methods = '[[class]]\nname = "rest"\nmethods = ["requeue", "suspend", "dmtcp"]\n'
    realtime = "realtime = true\nslowdown_bound = 1.5\nact_at = {narrow-short = 1.1, wide-long = 1.25}\n"
    site.config.write_text(f'[[class]]\nname = "beamline"\npartition = ["beam"]\n{realtime}{methods}')
    config = parse_config(site.config.read_text(), "omfs.toml")
    settings = gateway.settings()
    (found,) = check_realtime(config, gateway, settings, nodes)
    assert found.what.startswith(
        "a bound of 1.5 is safe for time limits from 5 min on: dmtcp may take 59 s, and 25% of the limit are left"
    )
    assert found.what.endswith("; jobs without a time limit are never due in beam")
    config = parse_config(site.config.read_text().replace('"suspend", "dmtcp"', '"suspend"'), "omfs.toml")
    (found,) = check_realtime(config, gateway, settings, nodes)
    assert "from 3 min on: requeue may take 30 s" in found.what
    assert findings_of(site, gateway)["real-time class beamline"] is Level.WARN


def test_check_without_slurm_and_without_nodes(site: Site) -> None:
    found = findings_of(site, FakeGateway({}))
    assert (found["omfsd"], found["connection"], found["metrics"]) == (Level.WARN, Level.FAIL, Level.OK)
    assert findings_of(site, FakeGateway({"KillWait": "5"}, up=False))["connection"] is Level.FAIL


def test_check_knows_its_own_plug_in(tmp_path: Path) -> None:
    default = Path("/run/omfs/heartbeat")
    settings = SlurmSettings("22.05.8", {"SLURM_CONF": str(tmp_path / "slurm.conf")})
    assert installed_plug_in(settings) is PlugIn.MISSING
    (tmp_path / "job_submit.lua").write_text("-- somebody's")
    assert installed_plug_in(settings) is PlugIn.ANOTHER
    (tmp_path / "job_submit.lua").write_text("-- omfs")
    assert installed_plug_in(settings) is PlugIn.OURS
    assert watched_heartbeat(plug_in_settings(settings), default) == default
    (tmp_path / "omfs_job_submit.conf").write_text("# ours\nheartbeat=/x/heartbeat\nmax_age=30\n")
    assert watched_heartbeat(plug_in_settings(settings), default) == Path("/x/heartbeat")
