"""What users send to the submit gate, while slurmctld waits: C4, C5, and their kin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from omfs_daemon.protocol.job_comment import methods_in_comment
from omfs_daemon.slurm.commands.parse_jobs import COMMENT_KEPT
from tests.support.lua_gate import LuaGate

pytestmark = pytest.mark.slurm

LIMIT = 0.010
"""Seconds of processor time; slurmctld starts and lists no job meanwhile."""

CLASSES = {
    f"class_{number}": f"partition=p{number},q{number};qos=x{number},y{number};account=a{number};methods=requeue"
    for number in range(1, 20)
} | {"class_20": "partition=urgent;urgent=yes"}

FIELDS = {
    "c04 nodes and licenses": (
        "req_nodes = ('n2,'):rep(N) .. 'n1', licenses = ('ve_n1,'):rep(N / 120) .. 've_n1'",
        20_000,
    ),
    "c04 licenses": ("req_nodes = 'n1', licenses = ('ve_n1,'):rep(N)", 160),
    "c04 many licenses": ("licenses = ('ve_n1,'):rep(N)", 200_000),
    "c04 odd licenses": ("licenses = (',;| '):rep(N)", 200_000),
    "partitions": ("partition = ('main,'):rep(N)", 200_000),
    "different partitions": ("partition = NAMES(N)", 170),
    "an account": ("account = ('a'):rep(N)", 1_000_000),
    "a bound of digits": ("comment = 'omfs:bound=' .. ('1'):rep(N) .. 'x'", 60_000),
    "methods": ("comment = 'omfs:method=' .. ('a,'):rep(N)", 30_000),
    "waits": ("comment = ('omfs:wait '):rep(N)", 1_600),
    "more waits": ("comment = ('omfs:wait '):rep(N)", 200_000),
    "keys": ("comment = ('omfs:method=requeue '):rep(N)", 800),
    "spaces": ("comment = (' '):rep(N)", 16_000),
    "array": ("array_inx = ('1,'):rep(N) .. '1'", 100_000),
    "marks": ("admin_comment = ('omfs:held:1 | '):rep(N)", 100_000),
    "tasks": ("tres_per_task = ('9'):rep(N)", 100_000),
}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> LuaGate:
    made = LuaGate(
        tmp_path_factory.mktemp("gate"),
        {"node_licenses": "ve_{node},mem_{node}", "any_licenses": "ve", "min_runtime_max": "60", **CLASSES},
    )
    made.run("""
        function NAMES(n) local t = {} for i = 1, n do t[i] = 'p' .. i end return table.concat(t, ',') end
        function FRESH(fields)
          local job = { script = '#!', user_id = 5, partition = 'main', account = 'bio' }
          job.comment = 'omfs:method=requeue'
          for name, value in pairs(fields) do job[name] = value end
          return job
        end
    """)
    return made


@pytest.mark.parametrize("name", FIELDS)
def test_c04_no_list_that_users_submit_keeps_slurmctld_waiting(gate: LuaGate, name: str) -> None:
    fields, number = FIELDS[name]
    gate.run(f"N = {number} FIELDS = {{ {fields} }}")
    code, seconds = gate.timed("slurm_job_submit(FRESH(FIELDS), PARTITIONS, 5)")
    assert code in (0, 2036), gate.value("table.concat(slurm.said, ' / ')")
    assert seconds < LIMIT
    assert "failed" not in gate.value("table.concat(slurm.said, ' / ')")


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "array"])
def test_c04_nor_does_one_in_an_update(gate: LuaGate, name: str) -> None:
    fields, number = FIELDS[name]
    gate.run(f"N = {number} FIELDS = {{ {fields} }}")
    gate.run("function CHANGED() local c = {} for k, v in pairs(CHANGE) do c[k] = v end "
             "for k, v in pairs(FIELDS) do c[k] = v end return c end")  # fmt: skip
    code, seconds = gate.timed("slurm_job_modify(CHANGED(), JOB, PARTITIONS, 5)")
    assert code in (0, 2002)
    assert seconds < LIMIT
    assert "failed" not in gate.value("table.concat(slurm.said, ' / ')")


def test_c05_half_a_million_options_of_spank_are_not_read(gate: LuaGate) -> None:
    """Slurm's binding makes the table when it is asked for it: what must not happen."""
    gate.run("""
        READ = 0
        function HUGE()
          local fields = FRESH({ spank_job_env_size = 500000 })
          return setmetatable({}, {
            __index = function(_, name) if name == 'spank_job_env' then READ = READ + 1 end return fields[name] end,
            __newindex = fields,
          })
        end
    """)
    code, seconds = gate.timed("slurm_job_submit(HUGE(), PARTITIONS, 5)")
    assert (code, gate.value("READ")) == (2036, "0")
    assert seconds < LIMIT
    assert "options of SPANK plug-ins" in gate.value("table.concat(slurm.said, ' / ')")


def test_c05_those_of_a_site_are_read(gate: LuaGate) -> None:
    gate.run("JOB_NOW = FRESH({ comment = '', spank_job_env_size = 2, spank_job_env = "
             "{ 'X=1', 'OMFS_METHOD=requeue' } })")  # fmt: skip
    gate.run("CODE = slurm_job_submit(JOB_NOW, PARTITIONS, 5)")
    assert gate.value("JOB_NOW.comment") == "omfs:method=requeue"


@pytest.mark.parametrize(("account", "touched"), [("BEAM", "wake"), ("Bio", "wake_later")])
def test_an_account_counts_as_slurmdbd_stores_it(tmp_path: Path, account: str, touched: str) -> None:
    gate = LuaGate(
        tmp_path,
        {
            "class_1": "account=beam;urgent=yes",
            "class_2": "account=bio",
            "class_3": "methods=requeue;default=requeue",
        },
    )
    gate.run(f'JOB = {{ partition = "main", account = "{account}", script = "#!" }}')
    gate.run("CODE = slurm_job_submit(JOB, PARTITIONS, 1000)")
    assert gate.value("CODE") == "0"
    assert gate.value("JOB.priority") == "0", "held: it is of no class that may be preempted"
    assert [file.name for file in tmp_path.glob("wake*")] == [touched]


@pytest.mark.parametrize(
    ("job", "touched"),
    [
        ('{ partition = "main", account = "bio" }', "wake_later"),
        ('{ partition = "urgent", account = "bio" }', "wake"),
        ('{ partition = "main,urgent", account = "bio" }', "wake_later"),
        ('setmetatable({}, { __index = function() error("unreadable") end })', "wake"),
    ],
)
def test_an_urgent_job_and_one_that_cannot_be_read_wake_omfsd_at_once(tmp_path: Path, job: str, touched: str) -> None:
    gate = LuaGate(tmp_path, {"class_1": "partition=urgent;urgent=yes", "class_2": "methods=requeue;default=requeue"})
    gate.run(f"CODE = slurm_job_submit({job}, PARTITIONS, 1000)")
    assert gate.value("CODE") == "0", "it is let in"
    assert [file.name for file in tmp_path.glob("wake*")] == [touched]


@pytest.mark.parametrize(
    "change", ["min_cpus = 8", "cpus_per_tres = 'gres:gpu:8'", "tres_per_job = 'gres:gpu:8'", "sockets_per_node = 2"]
)
def test_k14_a_release_that_was_decided_on_before_a_change_is_refused(tmp_path: Path, change: str) -> None:
    gate = LuaGate(tmp_path, {"daemon_uid": "64", "privileged_uids": "0,64"})
    gate.run("""
        JOB.job_id, JOB.admin_comment = 7, 'omfs:held:1'
        function CHANGED(fields) for k, v in pairs(CHANGE) do fields[k] = fields[k] or v end return fields end
        MARK = 'omfs:rel:2?omfs:held:1'
        function RELEASE() return slurm_job_modify(CHANGED({ admin_comment = MARK }), JOB, {}, 64) end
    """)
    gate.run(f"LARGER = slurm_job_modify(CHANGED({{ {change} }}), JOB, PARTITIONS, 1000)")
    assert gate.value("LARGER") == "0"
    for polled, code in ((time.time(), "2002"), (time.time() + 10, "0")):
        (tmp_path / "admission").write_text(f"omfs admission 1 {polled:.3f}\nlevel 0 4\naccounts\nothers 0\nend\n")
        assert gate.value("RELEASE()") == code
    gate.run("slurm_job_modify(CHANGED({ min_cpus = 9 }), JOB, PARTITIONS, 1000)")
    gate.run("JOB.admin_comment = 'omfs:rel:2'")
    (tmp_path / "admission").write_text(f"omfs admission 1 {time.time():.3f}\nlevel 0 4\naccounts\nothers 0\nend\n")
    assert gate.value("slurm_job_modify(CHANGED({ priority = 4294967295 }), JOB, {}, 64)") == "2002", (
        "nor its second half"
    )


def test_k15_preferred_features_count_no_nodes(gate: LuaGate) -> None:
    for preferred, code, changed in (("fast*2", "2036", "2002"), ("fast", "0", "0")):
        gate.run(f"JOB_NOW = FRESH({{ prefer = '{preferred}' }})")
        assert gate.value("slurm_job_submit(JOB_NOW, PARTITIONS, 5)") == code
        gate.run(f"CHANGED = setmetatable({{ prefer = '{preferred}' }}, {{ __index = CHANGE }})")
        assert gate.value("slurm_job_modify(CHANGED, JOB, PARTITIONS, 5)") == changed


@pytest.mark.parametrize("nodes", ["n1 ", "n1 n2", "n1\\tn2", "n[1, 2]"])
@pytest.mark.parametrize("field", ["req_nodes", "exc_nodes"])
def test_k24_lists_of_nodes_are_as_omfsd_reads_them(gate: LuaGate, field: str, nodes: str) -> None:
    for listed, code, changed in ((nodes, "2036", "2002"), ("n[1-2,4],m-1.x", "0", "0")):
        gate.run(f"JOB_NOW = FRESH({{ {field} = '{listed}' }})")
        assert gate.value("slurm_job_submit(JOB_NOW, PARTITIONS, 5)") == code
        gate.run(f"CHANGED = setmetatable({{ {field} = '{listed}' }}, {{ __index = CHANGE }})")
        gate.run("MINE = setmetatable({ admin_comment = '', priority = 9 }, { __index = JOB })")
        assert gate.value("slurm_job_modify(CHANGED, MINE, PARTITIONS, 5)") == changed


def test_k26_omfsd_reads_as_much_of_a_comment_as_the_gate(gate: LuaGate) -> None:
    """Slurm lets an update exceed the 1,024 characters of a submission."""
    method = " omfs:method=requeue"
    for longest, code in ((COMMENT_KEPT, "0"), (COMMENT_KEPT + 1, "2002")):
        gate.run(f"CHANGED = {{ comment = ('x'):rep({longest - len(method)}) .. '{method}' }}")
        gate.run("MINE = setmetatable({ admin_comment = '', priority = 9 }, { __index = JOB })")
        assert gate.value("slurm_job_modify(CHANGED, MINE, PARTITIONS, 5)") == code
    assert methods_in_comment(f"{'x' * (COMMENT_KEPT - len(method))}{method}"[:COMMENT_KEPT]) == ["requeue"]


@pytest.mark.parametrize(
    "field", ["name", "reservation", "tres_per_node", "tres_per_job", "cpus_per_tres", "exc_nodes"]
)
def test_k27_what_each_poll_shows_is_bounded(gate: LuaGate, field: str) -> None:
    gate.run(f"LONG = {{ {field} = ('x'):rep(1000000) }}")
    gate.run("JOB_NOW = FRESH(LONG) CHANGED = setmetatable(LONG, { __index = CHANGE })")
    assert gate.value("slurm_job_submit(JOB_NOW, PARTITIONS, 5)") == "2036"
    assert gate.value("slurm_job_modify(CHANGED, JOB, PARTITIONS, 5)") == "2002"


@pytest.mark.parametrize("count", ["*2", "*+2", "* 2", "*\\t+02"])
def test_k11_counts_of_nodes_are_read_as_slurm_reads_them(gate: LuaGate, count: str) -> None:
    gate.run(f"JOB_NOW = FRESH({{ prefer = 'fast{count}' }})")
    assert gate.value("slurm_job_submit(JOB_NOW, PARTITIONS, 5)") == "2036"


def test_k15_without_omfsd_nothing_is_refused(tmp_path: Path) -> None:
    gate = LuaGate(tmp_path, {})
    (tmp_path / "heartbeat").unlink()
    gate.run("NEW = { script = '#!', user_id = 5, partition = 'main', account = 'bio', prefer = 'fast*2' }")
    assert gate.value("slurm_job_submit(NEW, PARTITIONS, 5)") == "0"


@pytest.mark.parametrize(
    ("stored", "code"),
    [
        ("het_job_id = 169, job_state = 1, priority = 9", "2002"),
        ("het_job_id = 169, job_state = 1, priority = 9, resv_name = 'other'", "2002"),
        ("het_job_id = 169, job_state = 1, priority = 0", "2002"),
        ("het_job_id = 169, job_state = 0, priority = 9", "2002"),
        ("het_job_id = 169, job_state = 0, priority = 0", "0"),
        ("het_job_id = 169, job_state = 1, priority = 9, resv_name = 'maint'", "0"),
        ("het_job_id = 0, job_state = 1, priority = 9", "0"),
    ],
)
def test_k30_no_part_of_a_job_that_was_let_in_changes_its_reservation(gate: LuaGate, stored: str, code: str) -> None:
    gate.run("CHANGED = setmetatable({ reservation = 'maint' }, { __index = CHANGE })")
    gate.run(f"PART = setmetatable({{ admin_comment = '', {stored} }}, {{ __index = JOB }})")
    assert gate.value("slurm_job_modify(CHANGED, PART, PARTITIONS, 5)") == code


def test_k30_nor_does_one_leave_it(gate: LuaGate) -> None:
    """`scontrol update ReservationName=`."""
    gate.run("CHANGED = setmetatable({ reservation = '' }, { __index = CHANGE })")
    for reservation, code in (("'maint'", "2002"), ("nil", "0")):
        part = f"het_job_id = 169, job_state = 1, priority = 9, resv_name = {reservation}, admin_comment = ''"
        assert (
            gate.value(f"slurm_job_modify(CHANGED, setmetatable({{ {part} }}, {{ __index = JOB }}), {{}}, 5)") == code
        )
