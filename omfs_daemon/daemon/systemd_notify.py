"""systemd's notification protocol (sd_notify(3)): ready, status, watchdog, reloading, stopping."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; does nothing where there is none. Never raises.

    ``monotonic_ns``: the monotonic clock, by which systemd tells the answer to its signal from an earlier reload.
    """

    def __init__(
        self, environment: Mapping[str, str] = os.environ, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._monotonic_ns = monotonic_ns
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @property
    def is_service(self) -> bool:
        """Whether systemd listens."""
        return bool(self._address)

    def ready(self, status: str = "") -> None:
        self._send(f"READY=1\n{_status(status)}" if status else "READY=1")

    def alive(self, status: str) -> None:
        """Reset the watchdog and report the status. Only for the loop: it must not live on when the loop hangs."""
        self._send(f"WATCHDOG=1\n{_status(status)}")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping: jobs stay as they are")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
                connection.settimeout(1.0)
                connection.sendto(text.encode(), self._address)
        except OSError:
            return


def _status(text: str) -> str:
    """In one line, for ``systemctl status``."""
    return f"STATUS={' '.join(text.split())[:200]}"
