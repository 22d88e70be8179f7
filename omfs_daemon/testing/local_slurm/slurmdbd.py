"""slurmdbd for a private Slurm, with a MariaDB of its own that no other user of this host can reach."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmdbd", "mariadbd", "sacctmgr")
PACKAGES = "slurmdbd mariadb-server-core"

_TABLES = (
    Path("/usr/share/mysql/mysql_system_tables.sql"),  # Debian 12
    Path("/usr/share/mariadb/mariadb_system_tables.sql"),  # from MariaDB 11 on
)


@dataclass(frozen=True)
class Accounting:
    """What slurmdbd knows: accounts below the root account, users who may use all of them (others may too, but cannot
    move their jobs there), users with the AdminLevels Operator and Administrator, and levels of QOS besides
    ``normal``."""

    accounts: Sequence[str] = ()
    users: Sequence[str] = ()
    operators: Sequence[str] = ()
    administrators: Sequence[str] = ()
    qos: Sequence[str] = ()

    def text(self, cluster: str) -> str:
        """The file for ``sacctmgr load``."""
        lines = [f"Cluster - '{cluster}':Fairshare=1", "Parent - 'root'"]
        levels = dict.fromkeys(self.operators, "Operator") | dict.fromkeys(self.administrators, "Administrator")
        lines += [f"User - '{user}':DefaultAccount='root':AdminLevel='{level}'" for user, level in levels.items()]
        lines += [f"Account - '{account}':Fairshare=1" for account in self.accounts]
        for account in self.accounts:
            users = [f"User - '{user}':DefaultAccount='{self.accounts[0]}'" for user in self.users]
            lines += [f"Parent - '{account}'", *users]
        return "\n".join(lines) + "\n"


def start_database(directory: Path, user: str) -> subprocess.Popen[bytes]:
    """Start an empty MariaDB in ``directory``, which must be a new one; it may not answer yet on return.

    Privileges are not checked; only ``user``, SlurmUser, can enter the directory of its socket.
    """
    directory.mkdir(mode=0o700, parents=True)
    shutil.chown(directory, user)
    server = [
        *("mariadbd", "--no-defaults", f"--user={user}", "--skip-grant-tables", f"--datadir={directory}"),
        *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"),
        f"--tmpdir={directory}",  # a server that starts removes the temporary tables of all others in its tmpdir
    ]
    listening = ["--skip-networking", f"--socket={database_socket(directory)}", f"--pid-file={directory}/pid"]
    with (directory / "mariadbd.log").open("ab") as log:
        # slurmdbd's stored procedures need MariaDB's own tables; without them it stores no account, and says nothing.
        statements = next((path for path in _TABLES if path.is_file()), _TABLES[0]).read_bytes()
        tables = b"create database mysql;\nuse mysql;\n" + statements
        subprocess.run([*server, "--bootstrap"], input=tables, stdout=log, stderr=log, cwd=directory, check=True)
        return subprocess.Popen(
            [*server, *listening],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            start_new_session=True,
        )


def database_socket(directory: Path) -> Path:
    """The socket of the MariaDB in ``directory``."""
    return directory / "socket"


def database_environment(directory: Path) -> Mapping[str, str]:
    """What slurmdbd's client library needs to find the MariaDB in ``directory``."""
    return {"MYSQL_UNIX_PORT": str(database_socket(directory))}


def write_slurmdbd_conf(directory: Path, port: int, user: str, munge_socket: Path | None) -> None:
    """slurmdbd.conf beside slurm.conf in ``directory``; slurmdbd requires that only its user can read it."""
    lines = [
        "AuthType=auth/munge",
        *([f"AuthInfo=socket={munge_socket}"] if munge_socket else []),
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        f"DbdPort={port}",
        f"SlurmUser={user}",
        f"LogFile={directory}/log/slurmdbd.log",
        f"PidFile={directory}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=slurm",
    ]
    path = directory / "slurmdbd.conf"
    path.write_text("\n".join(lines) + "\n")
    shutil.chown(path, user)
    path.chmod(0o600)


def slurm_conf_options(port: int, munge_socket: Path | None) -> dict[str, str]:
    """What slurm.conf needs for this slurmdbd, for which Slurm does not use the socket in AuthInfo."""
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(port),
        "AccountingStoragePass": str(munge_socket or ""),
    }
