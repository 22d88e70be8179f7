"""systemd's notification protocol (sd_notify(3)): ready, status, watchdog, stopping."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; does nothing where there is none. Never raises."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """Reset the watchdog and report the status."""
        self._send(f"WATCHDOG=1\nSTATUS={' '.join(status.split())[:200]}")

    def reloading(self) -> None:
        self._send("RELOADING=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
                connection.settimeout(1.0)
                connection.sendto(text.encode(), self._address)
        except OSError:
            return
