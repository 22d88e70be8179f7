"""K34 against job_submit.lua without slurmctld: the QOS that counts is the one that Slurm stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lua_gate import LuaGate

pytestmark = pytest.mark.slurm

SOLID = {"class_1": "qos=solid", "class_2": "qos=dear;account=bio;urgent=yes", "class_3": "methods=requeue,suspend"}
PLAIN = {"class_1": "account=other", "class_2": "methods=requeue,suspend"}


@pytest.fixture
def gate(tmp_path: Path) -> LuaGate:
    return made(tmp_path, SOLID)


def made(directory: Path, classes: dict[str, str]) -> LuaGate:
    gate = LuaGate(directory, classes)
    gate.run("""
        function NEW(qos, default)
          return { script = '#!', user_id = 5, account = 'physics', qos = qos, default_qos = default,
                   comment = 'omfs:method=requeue' }
        end
        MINE = setmetatable({ admin_comment = '', comment = 'omfs:method=requeue' }, { __index = JOB })
        function CHANGED(fields) return setmetatable(fields, { __index = CHANGE }) end
    """)
    return gate


def submitted(gate: LuaGate, qos: str, default: str = "nil") -> tuple[str, bool]:
    """The code, and whether the job is let in without a hold."""
    gate.run(f"JOB_NOW = NEW({qos}, {default}) CODE = slurm_job_submit(JOB_NOW, PARTITIONS, 5)")
    assert "failed" not in gate.value("table.concat(slurm.said, ' / ')")
    return gate.value("CODE"), gate.value("JOB_NOW.priority") != "0"


@pytest.mark.parametrize("qos", ["'solid'", "'SOLID'", "'Solid'"])
def test_k34_a_qos_counts_as_slurm_stores_it(gate: LuaGate, qos: str) -> None:
    assert submitted(gate, qos)[0] == "2036"
    assert gate.value(f"slurm_job_modify(CHANGED({{ qos = {qos} }}), MINE, PARTITIONS, 5)") == "2002"


@pytest.mark.parametrize(
    ("qos", "default", "lets_in"),
    [("nil", "nil", False), ("nil", "'solid'", None), ("nil", "'normal'", True), ("'cheap'", "'solid'", True)],
)
def test_k34_a_qos_that_is_not_known_may_be_any(gate: LuaGate, qos: str, default: str, lets_in: bool | None) -> None:
    expected = ("2036", True) if lets_in is None else ("0", lets_in)
    assert submitted(gate, qos, default) == expected


def test_k34_nor_is_one_known_that_an_update_leaves_to_slurm(gate: LuaGate) -> None:
    assert gate.value("slurm_job_modify(CHANGED({ qos = '' }), MINE, PARTITIONS, 5)") == "2002"
    assert gate.value("slurm_job_modify(CHANGED({ qos = 'cheap' }), MINE, PARTITIONS, 5)") == "0"


def test_k34_urgency_is_refused_however_its_qos_is_written(gate: LuaGate) -> None:
    assert submitted(gate, "'DEAR'")[0] == "2002"


def test_k34_of_several_qos_nobody_knows_which_counts(gate: LuaGate) -> None:
    assert submitted(gate, "'cheap,solid'")[0] == "2036"
    assert "takes one QOS" in gate.value("slurm.said[#slurm.said]")
    assert gate.value("slurm_job_modify(CHANGED({ qos = 'cheap,solid' }), MINE, PARTITIONS, 5)") == "2002"


def test_where_no_class_goes_by_it_any_qos_will_do(tmp_path: Path) -> None:
    gate = made(tmp_path, PLAIN)
    for qos in ("nil", "'SOLID'", "'cheap,solid'"):
        assert submitted(gate, qos) == ("0", True)


def test_a_job_without_a_qos_may_still_not_become_non_preemptible(gate: LuaGate) -> None:
    """Where Slurm stores none, that is known."""
    gate.run("MINE.qos, JOB.qos, MINE.priority = nil, nil, 9")
    assert gate.value("slurm_job_modify(CHANGED({ comment = 'omfs:method=none' }), MINE, PARTITIONS, 5)") == "2002"
