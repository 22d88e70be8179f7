"""Questions to a DMTCP coordinator: each with a timeout, none trusted as proof of a checkpoint."""

import os
import re
import signal
import subprocess
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

# Enough for a coordinator on the same node; one that does not respond in this time is asked again.
ANSWER_SECONDS = 10.0

_NOT_FOUND = 2
_MOST_KEPT = 1 << 20


class Reply(NamedTuple):
    """The exit code of a command (None: killed at its timeout) and what it printed."""

    code: Optional[int]
    stdout: str
    stderr: str


class Status(NamedTuple):
    """``found``: whether there is a coordinator; ``running``: every process of the program runs."""

    found: bool
    peers: int
    running: bool


class DmtcpPeer(NamedTuple):
    """A process of the program as the coordinator lists it; ``id``: DMTCP's own name of it, part of its image's."""

    pid: int
    id: str
    state: str


def run_dmtcp(arguments: Sequence[str], environment: Dict[str, str], timeout: float) -> Reply:
    """Run a command for at most ``timeout`` seconds; raises OSError if it cannot be executed."""
    process = subprocess.Popen(
        list(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    code: Optional[int] = None
    try:
        out, err = process.communicate(timeout=max(timeout, 0.1))
        code = process.returncode
    except subprocess.TimeoutExpired:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            process.kill()
        out, err = process.communicate()
    return Reply(code, _text(out), _text(err))


def _text(raw: bytes) -> str:
    return raw[:_MOST_KEPT].decode("utf-8", "replace")


_PEERS = re.compile(r"^\s*NUM_PEERS=(\d+)\s*$", re.MULTILINE)
_RUNNING = re.compile(r"^\s*RUNNING=(yes|no)\s*$", re.MULTILINE)
# #, PROG[virtPID:realPID]@HOST, UNIQUEPID, STATE, BARRIER; a program's name may hold anything, so it is skipped.
_PEER = re.compile(r"^\d+, .*\[-?\d+:(\d+)\]@[^,]*, ([^,]*), (?:WorkerState::)?(\w+)(?:,.*)?$")


def parse_status(reply: Reply) -> Optional[Status]:
    """What ``-s`` printed; None if there was no reply."""
    peers, running = _PEERS.search(reply.stdout), _RUNNING.search(reply.stdout)
    if reply.code == 0 and peers is not None and running is not None:
        return Status(True, int(peers.group(1)), running.group(1) == "yes" and int(peers.group(1)) > 0)
    if reply.code == _NOT_FOUND:
        return Status(False, 0, False)
    return None


def parse_list(text: str) -> List[DmtcpPeer]:
    """The processes that ``-l`` lists."""
    found = (_PEER.match(line) for line in text.splitlines())
    return [DmtcpPeer(int(peer.group(1)), peer.group(2), peer.group(3)) for peer in found if peer is not None]


def read_port(path: str) -> Optional[int]:
    """The port in a port file; None until it is written. The file is 0600 in a private directory, so it is trusted."""
    try:
        with open(path) as file:
            text = file.read(16).strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else None


class Coordinator:
    """The coordinator of one program; ``command``: the path of ``dmtcp_command``."""

    def __init__(self, command: str, port_file: str, environment: Dict[str, str]) -> None:
        self._command = command
        self._port_file = port_file
        self._environment = environment

    def ask(self, *arguments: str, timeout: float = ANSWER_SECONDS) -> Reply:
        """Send one command; a missing port and a failed command count as no reply."""
        port = read_port(self._port_file)
        if port is None:
            return Reply(None, "", "no port")
        where = ["--coord-host", "127.0.0.1", "--coord-port", str(port)]
        try:
            return run_dmtcp([self._command, *where, *list(arguments)], self._environment, timeout)
        except OSError as error:
            return Reply(None, "", str(error))

    def status(self, timeout: float = ANSWER_SECONDS) -> Optional[Status]:
        return parse_status(self.ask("-s", timeout=timeout))

    def peers(self, timeout: float = ANSWER_SECONDS) -> List[DmtcpPeer]:
        return parse_list(self.ask("-l", timeout=timeout).stdout)

    def quit(self, timeout: float) -> Tuple[Optional[int], str]:
        """Tell it to end the program and itself."""
        reply = self.ask("-q", timeout=timeout)
        return reply.code, reply.stderr
