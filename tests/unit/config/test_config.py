"""The configuration file: what it may say, and the one line that tells what is wrong with it."""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from omfs_daemon.config.build import rules
from omfs_daemon.config.load import check_accounts, load, parse_config
from omfs_daemon.config.sample import as_toml, effective, sample
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.slurm.gateway import AccountRow

SAMPLE = Path(__file__).parents[3] / "docs" / "omfs.toml"

METHODS = "requeue, suspend, dmtcp, criu, application, pageout, ve_swap"

WRONG = [
    ("a", "f.toml: Expected '=' after a key in a key/value pair (at end of document): must be TOML"),
    ('[daemon]\nuser = "sl\\u0000urm"', r"f.toml: daemon.user = 'sl\x00urm': must have no NUL character"),
    ('[slurm]\nconf = "/a\\u0000b"', r"f.toml: slurm.conf = '/a\x00b': must have no NUL character"),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nact_at = nan",
        "f.toml: class[0].act_at = NaN: must be a number of at least 1, or a table by category",
    ),
    ("[slurm]\npoll_seconds = 1\n]", "f.toml: Invalid statement (at line 3, column 1): must be TOML"),
    ("[slurm]\npoll_second = 1", "f.toml: slurm.poll_second = 1: unknown key; did you mean 'poll_seconds'?"),
    ("[slum]", "f.toml: slum = {}: unknown key; did you mean 'slurm'?"),
    (
        "[slurm]\nx = 1",
        "f.toml: slurm.x = 1: unknown key; known here: calls_per_second, conf, gateway, poll_seconds, timeout_seconds",
    ),
    ("[slurm]\npoll_seconds = -1", "f.toml: slurm.poll_seconds = -1: must be greater than 0"),
    ("[slurm]\npoll_seconds = nan", "f.toml: slurm.poll_seconds = NaN: must be greater than 0"),
    ("[slurm]\npoll_seconds = inf", "f.toml: slurm.poll_seconds = Infinity: must be a finite number"),
    ("[slurm]\npoll_seconds = true", "f.toml: slurm.poll_seconds = true: must be a number"),
    ('[slurm]\npoll_seconds = "1"', "f.toml: slurm.poll_seconds = '1': must be a number"),
    ("[slurm]\nconf = 3", "f.toml: slurm.conf = 3: must be a path in quotes"),
    ('[slurm]\nconf = "etc"', "f.toml: slurm.conf = 'etc': must be an absolute path"),
    ("slurm = 1", "f.toml: slurm = 1: must be a table"),
    (
        '[daemon]\nlog_format = "xml"',
        "f.toml: daemon.log_format = 'xml': must be 'auto', 'journal', 'json' or 'console'",
    ),
    ('[daemon]\ndry_run = "yes"', "f.toml: daemon.dry_run = 'yes': must be true or false"),
    (
        "[daemon]\nfailsafe_grace_seconds = -0.5",
        "f.toml: daemon.failsafe_grace_seconds = -0.5: must be greater than or equal to 0",
    ),
    ("[policy]\nrank_depth = 1.5", "f.toml: policy.rank_depth = 1.5: must be a whole number"),
    ("[policy]\nmax_preemptions_per_cycle = 0", "f.toml: policy.max_preemptions_per_cycle = 0: must be greater than 0"),
    ("[metrics]\nport = 99999", "f.toml: metrics.port = 99999: must be less than 65536"),
    ("[entitlements]\nbio = 50", "f.toml: entitlements.bio = 50: must be a table"),
    ("[entitlements.a]\nparent = ''", "f.toml: entitlements.a: needs percent or cpus"),
    (
        "[entitlements.a]\npercen = 1",
        "f.toml: entitlements.a.percen = 1: unknown key; did you mean 'percent'?",
    ),
    ("[entitlements.a]\npercent = 101", "f.toml: entitlements.a.percent = 101: must be a number from 0 to 100"),
    ("[entitlements.a]\npercent = 'x'", "f.toml: entitlements.a.percent = 'x': must be a number from 0 to 100"),
    (
        "[entitlements.a]\npercent = 1e-999999",
        "f.toml: entitlements.a.percent = 1E-999999: must be a number from 0 to 100",
    ),
    ("[[class]]\nname = 'q'\nqos = 'u'", "f.toml: class[0].qos = 'u': must be a list: [...], or [[...]] for tables"),
    ("[class]\nname = 'x'", "f.toml: class = {'name': 'x'}: must be a list: [...], or [[...]] for tables"),
    (
        "[nodes]\ncommand = ['sudo', 'x; rm']",
        "f.toml: nodes.command[1] = 'x; rm': must be made of letters, digits and _ . / = + : @ -",
    ),
    (
        "[[node_license]]\nlicense = 've'\nkind = 'devices'",
        "f.toml: node_license[0].license = 've': must hold {node} once, as in \"ve_{node}\", "
        "and else letters, digits and _ . -",
    ),
    (
        "[methods.dmtpc]",
        "f.toml: methods.dmtpc = 'dmtpc': must be one of " + METHODS,
    ),
    (
        "[[class]]\nname = 'u'\nqos = ['u']\nurgent = true\nwhen_preemption_fails = 'requeue'",
        "f.toml: class[0]: an urgent class has no when_preemption_fails: urgent jobs are never preempted",
    ),
    (
        "[[class]]\nname = 'a'\nmethods = ['stop']",
        "f.toml: class[0].methods[0] = 'stop': must be one of " + METHODS,
    ),
    (
        "[[class]]\nname = 'u'\nurgent = true",
        "f.toml: class[0]: an urgent class needs partition, qos or account: else every job would be urgent",
    ),
    (
        "[[class]]\nname = 'u'\nqos = ['u']\nurgent = true\ndefault = ['requeue']",
        "f.toml: class[0]: an urgent class has no methods and no default: urgent jobs are never preempted",
    ),
    (
        "[[class]]\nname = 'r'\nsignal = 'KILL'",
        "f.toml: class[0].signal = 'KILL': must be one of HUP, INT, QUIT, TERM, USR1, USR2, after B: for the batch "
        "shell alone",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nurgent = true\nsignal = 'USR2'",
        "f.toml: class[0]: an urgent class has no signal: urgent jobs are never preempted",
    ),
    (
        "[[class]]\nname = 'r'\nrealtime = true",
        "f.toml: class[0]: a real-time class needs partition, qos or account: else every job would be real-time",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nurgent = true",
        "f.toml: class[0]: a class is urgent (at once) or real-time (within a bound), not both",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nact_at = 'soon'",
        "f.toml: class[0].act_at = 'soon': must be a number of at least 1, or a table by category",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nact_at = 0.9",
        "f.toml: class[0].act_at = 0.9: must be a number of at least 1, or a table by category",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nslowdown_bound = 0.5",
        "f.toml: class[0].slowdown_bound = 0.5: must be greater than or equal to 1",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nslowdown_bound = 1.05",
        "f.toml: class[0]: slowdown_bound = 1.05 must not be below act_at = 1.1 of narrow-short",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nact_at = {wide-long = 1.3}",
        "f.toml: class[0]: slowdown_bound = 1.2 must not be below act_at = 1.3 of wide-long",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\nvictim_max_slowdown = {wide = 2.0}",
        "f.toml: class[0].victim_max_slowdown.wide = 'wide': must be 'narrow-short', 'narrow-long', "
        "'wide-short' or 'wide-long'",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nrealtime = true\ndefault = ['requeue']",
        "f.toml: class[0]: a real-time class has no methods and no default: real-time jobs are never preempted",
    ),
    (
        "[[class]]\nname = 'r'\nqos = ['r']\nact_at = 1.2",
        "f.toml: class[0]: act_at is for real-time classes: set realtime = true",
    ),
    (
        "[[class]]\nname = 'a'\nmethods = ['suspend']\ndefault = ['requeue']",
        "f.toml: class[0]: default 'requeue' is not among its methods: suspend",
    ),
    (
        "[[book]]\nlicence = 've_{node}'",
        "f.toml: book = [{'licence': 've_{node}'}]: unknown key; it is now 'node_license'",
    ),
    (
        "[[node_license]]\nlicence = 've_{node}'\nkind = 'devices'",
        "f.toml: node_license[0].licence = 've_{node}': unknown key; it is now 'license' (and 1 more)",
    ),
    (
        "[policy]\nmax_stops_per_hour = 1",
        "f.toml: policy.max_stops_per_hour = 1: unknown key; it is now 'max_preemptions_per_hour'",
    ),
    (
        "[policy]\nmax_stops_per_cycle = 1",
        "f.toml: policy.max_stops_per_cycle = 1: unknown key; it is now 'max_preemptions_per_cycle'",
    ),
    (
        "[policy]\nstop_timeout_seconds = 1",
        "f.toml: policy.stop_timeout_seconds = 1: unknown key; it is now 'preempt_timeout_seconds'",
    ),
    (
        "[[class]]\nname = 'a'\nwhen_stop_fails = 'requeue'",
        "f.toml: class[0].when_stop_fails = 'requeue': unknown key; it is now 'when_preemption_fails'",
    ),
    (
        "[methods.dmtcp]\nstop_seconds = 1",
        "f.toml: methods.dmtcp.stop_seconds = 1: unknown key; it is now 'preempt_seconds'",
    ),
    (
        "[methods.dmtcp]\nback_seconds = 1",
        "f.toml: methods.dmtcp.back_seconds = 1: unknown key; it is now 'resume_seconds'",
    ),
    ("[[class]]\nname = 'a'\n[[class]]\nname = 'a'", "f.toml: class.name = 'a': must be unique, but is given 2 times"),
    ("[slurm]\nconf = '\\e[31m'", "f.toml: slurm.conf = '\\\\e[31m': must be an absolute path"),
]


@pytest.mark.parametrize(("text", "line"), WRONG)
def test_wrong_file_gets_one_line(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f.toml")
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[entitlements.a]\npercent=60\n[entitlements.b]\npercent=50", "add up to 110 %: at most 100 (a 60, b 50)"),
        ("[entitlements.a]\npercent=60\nparent='x'", "account 'a': parent = 'x' is not among the accounts"),
        ("[entitlements.a]\nparent='b'", "entitlements.a: needs percent or cpus"),
        ("[entitlements.a]\npercent=60\ncpus=4", "entitlements.a: has percent and cpus: give one of them"),
        ("[entitlements.a]\ncpus=-4", "entitlements.a.cpus = -4"),
        ("[entitlements.a]\npercent=60\nparent='a'", "accounts form a cycle: a -> a"),
    ],
)
def test_tree_of_accounts_is_checked_and_the_file_named(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(part)) as caught:
        parse_config(text, "f.toml")
    assert str(caught.value).startswith("f.toml: ")
    assert "\n" not in str(caught.value)


def test_value_with_control_characters_stays_on_one_harmless_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config('[slurm]\n"po\\u001bll\\n" = "\\u001b[2J\\n"', "f.toml")
    assert str(caught.value).isprintable()


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ConfigError, match="byte 3 is not UTF-8"):
        load(tmp_path / "latin.toml")


def test_percentages_are_exact_decimals() -> None:
    config = parse_config("[entitlements.a]\npercent = 29\n[entitlements.b]\npercent = 0.1\n", "f")
    assert [entitlement.percent for entitlement in config.all_entitlements] == [29, Fraction(1, 10)]
    tree = rules(config, config.all_entitlements).tree
    assert tree.entitled(100)[tree.leaf("a").index] == 29


def test_thirds_written_long_do_not_exceed_the_whole() -> None:
    third = "33.33333333333333333333"
    text = "".join(f"[entitlements.{name}]\npercent = {third}\n" for name in "abc")
    assert sum(entitlement.percent for entitlement in parse_config(text, "f").all_entitlements) < 100


def test_rules_follow_the_file() -> None:
    config = parse_config(
        "[policy]\nquantum_seconds = 7\nrank_depth = 3\nmax_preemptions_per_cycle = 2\n"
        "[[class]]\nname = 'urgent'\nqos = ['urgent']\nurgent = true\n"
        "[[class]]\nname = 'scratch'\npartition = ['scratch']\ndefault = ['requeue']\n",
        "f",
    )
    made = rules(config, ())
    assert (made.quantum, made.rank_depth, made.max_preemptions_per_cycle, made.max_preemptions_per_hour) == (
        7,
        3,
        2,
        4,
    )
    urgent, scratch = made.classes
    assert urgent.urgent and urgent.methods == () and urgent.qos == {"urgent"}
    assert scratch.methods == tuple(installed()) and scratch.default == ("requeue",)


def test_defaults_agree_with_the_policys_own() -> None:
    made, own = rules(Config(), ()), Rules(methods={}, unmatched=REGULAR)
    names = (
        "quantum",
        "max_preemptions_per_hour",
        "max_preemptions_per_cycle",
        "urgent_may_take_entitled",
        "rank_depth",
    )
    assert {name: getattr(made, name) for name in names} == {name: getattr(own, name) for name in names}


def test_accounts_must_be_known_where_accounting_runs() -> None:
    config = parse_config("[entitlements.bio]\npercent = 10", "f")
    check_accounts(config, None)
    check_accounts(config, [AccountRow("bio", "")])
    with pytest.raises(ConfigError, match=r"entitlements\.bio: .* did you mean 'bios'\?"):
        check_accounts(config, [AccountRow("bios", ""), AccountRow("physics", "")])
    with pytest.raises(ConfigError, match="it knows physics"):
        check_accounts(config, [AccountRow("physics", "")])
    config = parse_config("[entitlements.root]\npercent = 10", "omfs.toml")
    with pytest.raises(ConfigError, match=r"entitlements\.root: is above all accounts, so it is the whole cluster"):
        check_accounts(config, [AccountRow("root", ""), AccountRow("physics", "")])


# -- the sample --------------------------------------------------------------------------------------


def test_options_of_methods_are_what_json_has() -> None:
    config = parse_config('[methods.ve_swap.options]\npoll_seconds = 0.5\ncommands = {out = ["/bin/x", 0.1]}', "f")
    assert (
        json.dumps(config.methods["ve_swap"].options) == '{"poll_seconds": 0.5, "commands": {"out": ["/bin/x", 0.1]}}'
    )
    with pytest.raises(ConfigError, match="options"):
        parse_config("[methods.ve_swap.options]\nsince = 2026-01-01", "f")


def test_sample_loads_to_the_defaults() -> None:
    assert parse_config(sample(), "sample") == Config()


def test_sample_with_all_comments_taken_away_is_right_and_keeps_the_defaults() -> None:
    config = parse_config(re.sub(r"(?m)^#(?=\S)", "", sample()), "sample")
    assert (config.slurm, config.daemon, config.policy, config.metrics) == (
        Config().slurm,
        Config().daemon,
        Config().policy,
        Config().metrics,
    )
    assert config.entitlements and config.classes


def test_every_option_is_described_and_its_example_is_allowed() -> None:
    for section, field in Config.model_fields.items():
        model = field.annotation
        if not hasattr(model, "model_fields"):
            continue
        for name, option in model.model_fields.items():
            assert option.description, name
            assert option.examples, name
            for example in option.examples:
                Config.model_validate({section: {name: example}})


def test_docs_are_in_step() -> None:
    """After a change of the models: ``omfs config default > docs/omfs.toml``."""
    assert SAMPLE.read_text() == sample()


def test_config_as_toml_loads_to_the_same() -> None:
    config = parse_config(re.sub(r"(?m)^#(?=\S)", "", sample()), "sample")
    again = parse_config(as_toml(config), "again")
    assert effective(again) == effective(config)
    assert all(section.methods for section in again.classes if not section.is_first), "what a class allows is shown"
    assert parse_config(as_toml(Config()), "again") == Config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[scope]\npartitions = []", "scope.partitions"),
        ('[scope]\naccounts = ["a b"]', "must be a name without blanks, commas or semicolons"),
        ('[scope]\npartitions = "main"', "scope.partitions"),
        ('[scope]\npartition = ["main"]', "scope.partition"),
    ],
)
def test_a_wrong_scope_gets_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "omfs.toml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
