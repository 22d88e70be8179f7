"""How long the program has computed, over all runs of the job: what a fall-back to an older checkpoint costs."""

import json
import os
import time
from typing import Callable

from omfs_daemon.omfs_run.store import files

_NAME = "run"
_EVERY = 30.0  # seconds between two beats: so much may be missing after a crash
_LIMIT = 4096


class Progress:
    """Seconds of computing of this run and of those before; the file's time of change says how far a run came."""

    def __init__(self, directory: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._base = 0.0
        self._began = clock()
        self._beaten = 0.0

    def reached(self) -> float:
        """How far the last run came; 0 without one."""
        try:
            content = json.loads(files.read(self._directory, _NAME, _LIMIT))
            last = os.stat(_NAME, dir_fd=self._directory, follow_symlinks=False).st_mtime
            return max(0.0, float(content["computed"]) + max(0.0, last - float(content["began"])))
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def begin(self, computed: float) -> None:
        """The program runs from now on, and has computed so many seconds before. A disk error is no reason to end."""
        self._base, self._began, self._beaten = computed, self._clock(), self._clock()
        try:
            files.write(self._directory, _NAME, json.dumps({"computed": computed, "began": time.time()}) + "\n")
        except OSError:
            self._beaten = float("inf")

    def seconds(self) -> float:
        return self._base + self._clock() - self._began

    def beat(self, now: bool = False) -> None:
        """Note how far it came, twice a minute or ``now``."""
        if now or self._clock() - self._beaten >= _EVERY:
            self._beaten = self._clock()
            try:
                os.utime(_NAME, dir_fd=self._directory, follow_symlinks=False)
            except OSError:
                self._beaten = float("inf")
