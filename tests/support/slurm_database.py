"""The MariaDB of a private Slurm, through the client library that slurmdbd itself loads."""

from __future__ import annotations

import ctypes
from pathlib import Path

from omfs_daemon.testing.local_slurm.slurm_conf import cluster_name
from omfs_daemon.testing.local_slurm.slurmdbd import database_socket

HOUR = 3600


def shift_accounting(directory: Path, begin: int, earlier: int) -> None:
    """Have all that is on record of the Slurm in ``directory`` happen so many seconds earlier, the cluster be there
    from ``begin`` on, and slurmdbd add up all hours from then on when it starts again. slurmdbd must not run."""
    name = cluster_name(directory)
    times = {"job": ("time_submit", "time_eligible", "time_start", "time_end"), "event": ("time_start", "time_end")}
    statements = ["use slurm"]
    for table, columns in times.items():
        for column in columns:
            where = f"where {column} > {earlier}"
            statements.append(f"update `{name}_{table}_table` set {column} = {column} - {earlier} {where}")  # noqa: S608
    statements += [
        f"update `{name}_event_table` set time_start = {begin} where node_name = ''",  # noqa: S608
        f"update `{name}_last_ran_table` set hourly_rollup = {begin}, daily_rollup = {begin}",  # noqa: S608
    ]
    _run(database_socket(directory / "database"), statements)


def _run(socket: Path, statements: list[str]) -> None:
    library = ctypes.CDLL("libmariadb.so.3")
    library.mysql_init.restype = ctypes.c_void_p
    library.mysql_error.restype = ctypes.c_char_p
    text = ctypes.c_char_p
    library.mysql_real_connect.argtypes = (ctypes.c_void_p, text, text, text, text, ctypes.c_uint, text, ctypes.c_ulong)
    library.mysql_real_connect.restype = ctypes.c_void_p
    library.mysql_query.argtypes = (ctypes.c_void_p, text)
    library.mysql_error.argtypes = library.mysql_close.argtypes = (ctypes.c_void_p,)
    server = library.mysql_init(None)
    try:
        connected = library.mysql_real_connect(server, None, b"root", None, None, 0, str(socket).encode(), 0)
        assert connected, library.mysql_error(server)
        for statement in statements:
            assert library.mysql_query(server, statement.encode()) == 0, library.mysql_error(server)
    finally:
        library.mysql_close(server)
