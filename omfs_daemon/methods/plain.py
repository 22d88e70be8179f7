"""What methods have in common that let go by one order of Slurm's."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.methods.base import Action, Progress, Seen


class Plain:
    """Nothing to prepare, nothing to finish; a job is stopped when it holds its CPUs no longer."""

    def prepare(self, seen: Seen) -> list[Action]:
        return []

    def finish(self, jobs: Sequence[Seen]) -> list[Action]:
        return []

    def progress(self, seen: Seen) -> Progress:
        if seen.job.runs:
            return Progress.UNTOUCHED
        return Progress.GOING if seen.job.holds_cpus else Progress.STOPPED

    def why_failed(self, seen: Seen) -> str:
        return ""

    def keep_stopped(self, seen: Seen) -> list[Action]:
        return []
