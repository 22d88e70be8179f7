"""What is sent to systemd."""

from __future__ import annotations

import socket
from pathlib import Path

from omfs_daemon.daemon.systemd_notify import Notifier
from tests.support.waiting import LIMIT


def test_systemd_hears_ready_alive_reloading_and_stopping(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(LIMIT)
        notifier = Notifier({"NOTIFY_SOCKET": address}, monotonic_ns=lambda: 12_345_678)
        notifier.ready("serving")
        notifier.alive("two jobs\nWATCHDOG=trigger are stopped")
        notifier.reloading()
        notifier.ready()
        notifier.stopping()
        heard = [systemd.recv(1000).decode() for _ in range(5)]
    assert heard == [
        "READY=1\nSTATUS=serving",
        "WATCHDOG=1\nSTATUS=two jobs WATCHDOG=trigger are stopped",
        "RELOADING=1\nMONOTONIC_USEC=12345",
        "READY=1",
        "STOPPING=1\nSTATUS=stopping: jobs stay as they are",
    ]


def test_without_systemd_or_with_a_dead_one_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready()
