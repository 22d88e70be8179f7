"""MUNGE for a private Slurm: the host's own munged where it works, else a private one."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
from pathlib import Path

_LIMIT = 10.0


def works(socket: Path | None = None) -> bool:
    """Whether a credential can be made and read (through the default socket without ``socket``)."""
    option = [f"--socket={socket}"] if socket else []
    try:
        made = subprocess.run(["munge", "--no-input", *option], capture_output=True, timeout=_LIMIT, check=True)
        subprocess.run(["unmunge", *option], input=made.stdout, capture_output=True, timeout=_LIMIT, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def start_munged(directory: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a munged with its own key in ``directory``; returns the process and its socket.

    munged requires directories that it owns; it may not answer yet on return.
    Raises LookupError if there is no user ``munge``, OSError if a program is missing.
    """
    user = pwd.getpwnam("munge")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o755, parents=True)
    key = directory / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    for path in (directory, key):
        os.chown(path, user.pw_uid, user.pw_gid)
    socket = directory / "socket"
    process = subprocess.Popen(
        [
            *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
            *("munged", "--foreground", f"--socket={socket}", f"--key-file={key}"),
            *(f"--pid-file={directory}/munged.pid", f"--seed-file={directory}/munged.seed"),
            f"--log-file={directory}/munged.log",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process, socket
