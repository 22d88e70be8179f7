"""Times omfs-run's own ``Run`` without Slurm.

``methods_worker.py OMFS_RUN SETTINGS``: a process of an ordinary user; commands on stdin (``start``, ``out``, ``back``,
``end``), a line of JSON on stdout for each. Runs with the system's Python, which every user may run.
"""

import json
import os
import signal
import sys
import time

sys.path.insert(0, sys.argv[1])

from omfs_daemon.omfs_run import driver_table
from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.dmtcp.dmtcp_driver import Dmtcp
from omfs_daemon.omfs_run.drivers.driver import Driver
from omfs_daemon.omfs_run.private_directory import open_private
from omfs_daemon.omfs_run.run import Run, RunSetup
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.protocol.exit_codes import STOPPED

LIMIT = 300.0


class FakeJobExit:
    """In place of Slurm: keeps the last report of each state."""

    fault = ""

    def __init__(self) -> None:
        self.reports = {}

    def report(self, state, **fields):
        self.reports[state] = fields

    def leave(self, code: int) -> int:
        return code


class Worker:
    """``settings``: method, bin (of DMTCP), command, directory, up."""

    def __init__(self, settings):
        self._settings = settings
        self._descriptor, path = open_private(settings["directory"], os.geteuid())
        self._store = Generations(self._descriptor, path)
        self._inbox = Inbox()
        self._run = None
        self._runs = 0

    def start(self):
        self._start_run()
        self._until_up()
        while not self._run._program.ready():
            time.sleep(0.01)
        return {}

    def out(self):
        begun, used = time.perf_counter(), _cpu()
        self._inbox.requested = time.monotonic()
        if self._run._stop() != STOPPED:
            raise SystemExit("not stopped: {}".format(self._run._job_exit.reports))
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "cpu": _cpu() - used, "bytes": self._run._job_exit.reports["stopped"]["bytes"]}

    def back(self):
        if os.path.exists(self._settings["up"]):
            os.unlink(self._settings["up"])
        begun, used = time.perf_counter(), _cpu()
        self._start_run()
        if self._settings["method"] == "application":
            self._until_up()
        return {"seconds": time.perf_counter() - begun, "cpu": _cpu() - used}

    def end(self):
        self._run._program.kill()
        self._store.clear()
        return {}

    def _start_run(self) -> None:
        # As in omfs_daemon/omfs_run/flow.py.
        driver = self._driver()
        self._store.verify_ahead()
        driver.version()
        scratch = self._settings["directory"] + "-scratch{}".format(self._runs)
        os.mkdir(scratch, 0o700)
        self._runs += 1
        setup = RunSetup(self._settings["command"], driver, scratch, LIMIT, False, False, {})
        self._run = Run(setup, FakeJobExit(), self._inbox, self._store, ComputedTime(self._descriptor))
        self._run._start_or_restart()

    def _driver(self) -> Driver:
        method = self._settings["method"]
        if method == "application":
            return Application(signal.SIGUSR1, self._settings["command"], os.environ, self._runs)
        return Dmtcp(self._settings["bin"]) if method == "dmtcp" else driver_table.load_driver(method)

    def _until_up(self) -> None:
        end = time.monotonic() + LIMIT
        while not os.path.exists(self._settings["up"]):
            if self._run._program.wait(0) is not None or time.monotonic() > end:
                raise SystemExit("the program did not come up")
            time.sleep(0.002)


def _cpu() -> float:
    return sum(os.times()[:4])


def main() -> None:
    commands, output = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    worker = Worker(json.loads(sys.argv[2]))
    with os.fdopen(commands) as lines, os.fdopen(output, "w") as replies:
        for line in lines:
            replies.write(json.dumps(getattr(worker, line.strip())()) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
