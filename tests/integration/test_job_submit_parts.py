"""What the submit gate does with orders for heterogeneous jobs, which reach it for each part in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lua_gate import LuaGate

pytestmark = pytest.mark.slurm

DAEMON, ROOT = 64, 0
HOLD, RELEASE = 0, 4294967295
ACCEPTED, DENIED = "0", "2002"


@pytest.fixture
def gate(tmp_path: Path) -> LuaGate:
    made = LuaGate(tmp_path, {"daemon_uid": str(DAEMON), "privileged_uids": f"{ROOT},{DAEMON}"})
    made.run("""
        function PART(offset, mark, priority, state)
          return setmetatable({
            job_id = 169 + offset, het_job_id = 169, het_job_offset = offset, admin_comment = mark,
            priority = priority, job_state = state,
          }, { __index = JOB })
        end
        function ORDER(text, priority)
          return setmetatable({ admin_comment = text, priority = priority }, { __index = CHANGE })
        end
    """)
    return made


def ordered(gate: LuaGate, text: str, stored: str, at: int, hold: int, priority: int = 0, state: int = 0) -> str:
    """What an order of omfsd's for all parts stores for this one; "" if it is refused for it."""
    gate.run(f"SENT = ORDER('{text}', {hold})")
    code = gate.value(f"slurm_job_modify(SENT, PART({at}, '{stored}', {priority}, {state}), {{}}, {DAEMON})")
    assert code in (ACCEPTED, DENIED)
    return gate.value("SENT.admin_comment") if code == ACCEPTED else ""


NONE = 4294967294


def test_each_part_is_compared_with_its_own_mark(gate: LuaGate) -> None:
    text = "omfs:held:7?omfs:rel:5,,omfs:rel:6"
    assert [ordered(gate, text, mark, at, HOLD, 9) for at, mark in enumerate(("omfs:rel:5", "", "omfs:rel:6"))] == [
        "omfs:held:7"
    ] * 3
    assert [ordered(gate, text, "omfs:rel:6", at, HOLD, 9) for at in range(4)] == ["", "", "omfs:held:7", ""]
    assert ordered(gate, "omfs:held:7?omfs:rel:5", "omfs:rel:5", 3, HOLD, 9) == "omfs:held:7"


@pytest.mark.parametrize(("mark", "priority"), [("adm:held", 0), ("adm:rel", 9)])
def test_an_administrator_who_has_been_there_since_counts(gate: LuaGate, mark: str, priority: int) -> None:
    """Omfsd has seen another mark of this part, and perhaps this one of another part."""
    for expected in ("omfs:held:5", f"{mark},omfs:held:5"):
        assert ordered(gate, f"omfs:rel:7?{expected} over", mark, 1, NONE, priority) == ""


def test_a_part_that_an_administrator_has_released_says_so_until_it_runs(gate: LuaGate) -> None:
    text = "omfs:rel:7?omfs:held:5,adm:rel over"
    assert ordered(gate, text, "omfs:held:5", 0, NONE) == "omfs:rel:7 over"
    assert ordered(gate, text, "adm:rel", 1, NONE, 9) == "adm:rel over"
    assert ordered(gate, text, "adm:rel", 1, NONE, 9, state=1) == "omfs:rel:7 over"


def test_an_order_of_an_earlier_epoch_is_refused_for_each_part(gate: LuaGate, tmp_path: Path) -> None:
    (tmp_path / "epoch").write_text("2000000000\n")
    for at, mark in enumerate(("omfs:held:1000000005", "adm:rel")):
        for number, is_taken in ((1000000007, False), (2000000007, True)):
            text = f"omfs:rel:{number}?omfs:held:1000000005,adm:rel"
            assert bool(ordered(gate, text, mark, at, NONE, 9)) is is_taken
