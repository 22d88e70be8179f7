"""How long the program has computed, over all runs of the job: tells what an older checkpoint would lose."""

import json
import os
import time
from typing import Callable

from omfs_daemon.omfs_run.store import files

_NAME = "run"
_EVERY = 30.0  # seconds between two records: at most this much is missing after a crash
_LIMIT = 4096
MOST_SECONDS = 1e12  # more than any job computes: no file is believed that says so


class ComputedTime:
    """Seconds of computing in this and earlier runs; the modification time of the file says how far a run came."""

    def __init__(self, directory: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._base = 0.0
        self._began = clock()
        self._recorded = 0.0

    def reached(self) -> float:
        """How far the last run came; 0 without one."""
        try:
            content = json.loads(files.read_file(self._directory, _NAME, _LIMIT))
            last = os.stat(_NAME, dir_fd=self._directory, follow_symlinks=False).st_mtime
            reached = float(content["computed"]) + max(0.0, last - float(content["began"]))
            return reached if 0 <= reached < MOST_SECONDS else 0.0
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return 0.0

    def begin(self, computed: float) -> None:
        """The program runs from now on and has computed ``computed`` seconds before. Disk errors are ignored."""
        self._base, self._began, self._recorded = computed, self._clock(), self._clock()
        try:
            files.write_file(self._directory, _NAME, json.dumps({"computed": computed, "began": time.time()}) + "\n")
        except OSError:
            self._recorded = float("inf")

    def seconds(self) -> float:
        return self._base + self._clock() - self._began

    def record(self, now: bool = False) -> None:
        """Record how far the program came, twice a minute or ``now``."""
        if now or self._clock() - self._recorded >= _EVERY:
            self._recorded = self._clock()
            try:
                os.utime(_NAME, dir_fd=self._directory, follow_symlinks=False)
            except OSError:
                self._recorded = float("inf")
