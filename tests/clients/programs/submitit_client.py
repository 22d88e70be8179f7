"""Has submitit count in jobs until a file appears; prints what it says of them, as JSON.

Usage: submitit_client.py FOLDER JOBS [NAME=VALUE...]   (more options of sbatch, as additional_parameters)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import submitit


class Count:
    """Goes on from its checkpoint."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.begun_at = at, at

    def __call__(self, folder: str, number: int) -> dict[str, int]:
        while not (Path(folder) / "end").exists():
            self.at += 1
            if self.at == self.begun_at + 5:
                (Path(folder) / f"counts-{number}-from-{self.begun_at}").touch()
            time.sleep(0.05)
        return {"begun_at": self.begun_at, "ended_at": self.at}

    def checkpoint(self, folder: str, number: int) -> submitit.helpers.DelayedSubmission:
        return submitit.helpers.DelayedSubmission(Count(self.at), folder, number)


def main() -> None:
    folder, jobs, *options = sys.argv[1:]
    executor = submitit.SlurmExecutor(folder=f"{folder}/log")
    given = dict(option.split("=", 1) for option in options)
    executor.update_parameters(time=60, ntasks_per_node=1, mem="100MB", additional_parameters=given)
    with executor.batch():
        submitted = [executor.submit(Count(), folder, number) for number in range(int(jobs))]
    (Path(folder) / "submitted").write_text(submitted[0].job_id.split("_")[0])
    while not (Path(folder) / "end").exists():
        # As its own wait() does, but more often.
        for job in submitted:
            if job.done(force_check=True):
                (Path(folder) / f"ended-{job.state}").touch()
        time.sleep(1)
    results = [job.result() if job.exception() is None else str(job.exception()) for job in submitted]
    print(json.dumps(results))


main()
