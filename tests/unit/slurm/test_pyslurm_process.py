"""The process in which PySlurm runs: whatever becomes of it, the daemon gets one line and goes on."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from omfs_daemon.errors import GatewayError, GatewayTimeout
from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from tests.support.pyslurm_stand_in.server import StandInServer
from tests.support.waiting import LIMIT, wait_until

SHORT = 1.5


def hanging(server: StandInServer) -> PySlurmProcess:
    """One that is up, and that hangs in the next request."""
    process = PySlurmProcess(None, LIMIT, variables=server.variables)
    look(process)
    process._timeout = SHORT
    server.faults.append("hangs")
    return process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandInServer]:
    served = StandInServer(tmp_path)
    served.gateway = FakeGateway(FakeSlurm.uniform(lambda: 0.0))
    yield served
    served.close()


@pytest.fixture
def process(server: StandInServer) -> Iterator[PySlurmProcess]:
    made = PySlurmProcess(None, LIMIT, variables=server.variables)
    yield made
    made.close()


def look(process: PySlurmProcess) -> dict[str, object]:
    return process.ask(do="poll", all=True)


def is_one_line(text: str) -> bool:
    return "\n" not in text and "Traceback" not in text


def test_it_is_one_process_for_all_requests_and_none_at_the_end(process: PySlurmProcess) -> None:
    assert process.pid is None
    assert look(process) == {"all": True, "changed": [], "gone": [], "ran": {}}
    pid = process.pid
    assert pid is not None and process.release() == "22.5.3"
    look(process)
    assert process.pid == pid
    process.close()
    assert process.pid is None and not psutil.pid_exists(pid)


def test_one_that_dies_in_a_request_is_reported_and_the_next_request_has_another(
    process: PySlurmProcess, server: StandInServer
) -> None:
    look(process)
    pid = process.pid
    server.faults.append("dies")
    with pytest.raises(GatewayError, match=r"PySlurm's process ended \(signal 9\)"):
        look(process)
    assert look(process)["all"] and process.pid != pid


def test_one_that_has_died_since_is_replaced(process: PySlurmProcess) -> None:
    look(process)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its end")
    assert look(process)["all"] and process.pid != pid


def test_one_that_hangs_is_ended(server: StandInServer) -> None:
    process = hanging(server)
    pid = process.pid
    assert pid is not None
    with pytest.raises(GatewayTimeout, match=r"no answer from Slurm within 1\.5 s"):
        look(process)
    assert not psutil.pid_exists(pid)
    process._timeout = LIMIT
    look(process)
    process.close()


def test_other_threads_go_on_while_a_call_hangs(server: StandInServer) -> None:
    process = hanging(server)
    raised: list[GatewayError] = []

    def ask() -> None:
        try:
            look(process)
        except GatewayError as error:
            raised.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    turns = 0
    while asking.is_alive():
        asking.join(0.001)
        turns += 1
    assert raised and turns > 20
    process.close()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("ends", r"PySlurm's process ended \(exit code 1\): fatal: Could not establish a configuration source"),
        ("fails", r"PySlurm: cannot import pyslurm: libslurm\.so\.38: cannot open shared object file"),
    ],
)
def test_an_import_that_fails_or_ends_the_interpreter_is_one_line(server: StandInServer, fault: str, said: str) -> None:
    process = PySlurmProcess(None, LIMIT, variables=server.variables | {"OMFS_STAND_IN_IMPORT": fault})
    for ask in (process.release, lambda: look(process)):
        with pytest.raises(GatewayError, match=said) as raised:
            ask()
        assert is_one_line(str(raised.value))
    assert process.pid is None


def test_an_import_that_hangs_is_ended(server: StandInServer) -> None:
    process = PySlurmProcess(None, SHORT, variables=server.variables | {"OMFS_STAND_IN_IMPORT": "hangs"})
    with pytest.raises(GatewayTimeout):
        process.release()
    assert process.pid is None


def test_without_a_pyslurm_or_with_one_of_another_kind_the_reason_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pyslurm.py").write_text('__version__ = "20.11.8"\nclass job: ...\n')
    process = PySlurmProcess(None, LIMIT, variables={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(GatewayError, match=r"it has no Job, Jobs, JobSubmitDescription, RPCError"):
        process.release()
    process = PySlurmProcess(None, LIMIT, variables={"PYTHONPATH": str(tmp_path / "nothing"), "PYTHONNOUSERSITE": "1"})
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "pyslurm.py").write_text("raise ModuleNotFoundError(\"No module named 'pyslurm'\")")
    with pytest.raises(GatewayError, match="cannot import pyslurm: No module named 'pyslurm'"):
        process.release()


def test_an_interpreter_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(GatewayError, match="cannot run /nowhere/python: No such file or directory"):
        PySlurmProcess(None, LIMIT, "/nowhere/python").release()


def test_what_libraries_print_is_no_answer_and_does_no_harm(server: StandInServer) -> None:
    process = PySlurmProcess(None, LIMIT, variables=server.variables | {"OMFS_STAND_IN_IMPORT": "prints"})
    server.faults.append("prints")
    assert look(process)["all"]
    process.close()


def test_garbage_among_the_answers_ends_it(process: PySlurmProcess, server: StandInServer) -> None:
    look(process)
    server.faults.append("garbles")
    with pytest.raises(GatewayError, match="did not write an answer: 'no answer"):
        look(process)
    assert process.pid is None
    assert look(process)["all"]


def test_it_ends_with_its_owner(server: StandInServer) -> None:
    program = """
        import os
        from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
        process = PySlurmProcess(None, 240.0)
        process.release()
        print(process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    owner = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | server.variables,
        stdout=subprocess.PIPE,
        timeout=LIMIT,
        cwd=Path(__file__).parents[3],
    )
    assert owner.returncode == -signal.SIGKILL
    wait_until(lambda: not psutil.pid_exists(int(owner.stdout)), "the end of the process")


def test_it_ends_when_nobody_has_it_any_more(server: StandInServer) -> None:
    process = PySlurmProcess(None, LIMIT, variables=server.variables)
    look(process)
    pid = process.pid
    assert pid is not None
    del process
    gc.collect()
    assert not psutil.pid_exists(pid)


def test_slurm_conf_is_handed_on_and_nothing_that_changes_answers(
    server: StandInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    process = PySlurmProcess(tmp_path / "slurm.conf", LIMIT, variables=server.variables)
    process.release()
    assert process.pid is not None
    variables = psutil.Process(process.pid).environ()
    assert variables["SLURM_CONF"] == str(tmp_path / "slurm.conf") and variables["SLURM_BITSTR_LEN"] == "0"
    assert "SLURM_CLUSTERS" not in variables
    process.close()
