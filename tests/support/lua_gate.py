"""job_submit.lua without slurmctld, in the interpreter that slurmctld itself loads."""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.daemons import ROOT

_HOST = """
slurm = { SUCCESS = 0, ERROR = -1, said = {} }
slurm.log_error = function(form, ...) slurm.said[#slurm.said + 1] = string.format(form, ...) end
slurm.log_user = slurm.log_error
PARTITIONS = { main = { flag_default = 1, total_nodes = 4, total_cpus = 16, max_share = 1 } }
CHANGE = {
  priority = 4294967294, nice = 4294967294, begin_time = 0, min_cpus = 4294967294, max_cpus = 4294967294,
  min_nodes = 4294967294, max_nodes = 4294967294, num_tasks = 4294967294,
}
JOB = {
  partition = "main", account = "bio", qos = "normal", priority = 0, nice = 2147483648, job_state = 0, comment = "",
  admin_comment = "omfs:held:0", min_nodes = 1,
}
"""


class LuaGate:
    """``settings``: lines of omfs_job_submit.conf. omfsd seems to live."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._lua = lua = ctypes.CDLL("liblua5.1.so.0")
        lua.luaL_newstate.restype = ctypes.c_void_p
        for name in ("lua_pcall", "luaL_loadstring", "luaL_loadfile", "luaL_openlibs", "lua_tolstring", "lua_settop"):
            getattr(lua, name).argtypes = None
        lua.lua_tolstring.restype = ctypes.c_char_p
        lua.lua_tonumber.restype = ctypes.c_double
        self._state = ctypes.c_void_p(lua.luaL_newstate())
        lua.luaL_openlibs(self._state)
        (directory / "heartbeat").write_text(f"{int(time.time())}\n")
        script = directory / "job_submit.lua"
        shutil.copy(ROOT / "plugins" / "job_submit.lua", script)
        lines = {"heartbeat": f"{directory}/heartbeat", "wake": f"{directory}/wake", "max_age": "3600", **settings}
        (directory / "omfs_job_submit.conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self.run(_HOST)
        self._call(lua.luaL_loadfile(self._state, str(script).encode()))

    def run(self, code: str) -> None:
        self._call(self._lua.luaL_loadstring(self._state, code.encode()))

    def value(self, expression: str) -> str:
        """As text."""
        self.run(f"VALUE = tostring({expression})")
        self._lua.lua_getfield(self._state, -10002, b"VALUE")
        found: bytes = self._lua.lua_tolstring(self._state, -1, None)
        self._lua.lua_settop(self._state, 0)
        return found.decode()

    def timed(self, call: str) -> tuple[int, float]:
        """What a call of ``slurm_job_submit`` or ``slurm_job_modify`` returns, and the least seconds of twenty
        times that it takes."""
        best = float("inf")
        for _ in range(20):
            self.run("collectgarbage() slurm.said = {}")
            began = time.process_time()
            self.run(f"CODE = {call}")
            best = min(best, time.process_time() - began)
        return int(self.value("CODE")), best

    def _call(self, loaded: int) -> None:
        code = loaded or self._lua.lua_pcall(self._state, 0, 0, 0)
        if code:
            error: bytes = self._lua.lua_tolstring(self._state, -1, None)
            raise AssertionError(error.decode())
