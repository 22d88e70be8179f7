"""Has parsl run two tasks in two blocks, which wait for a file; prints what they return.

Usage: parsl_client.py FOLDER METHOD
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider


@parsl.python_app
def wait(folder: str, number: int) -> int:
    import time
    from pathlib import Path

    Path(folder, f"started-{number}-{time.time_ns()}").touch()
    while not Path(folder, "end").exists():
        time.sleep(0.1)
    return number


def main() -> None:
    folder, method = sys.argv[1:]
    provider = SlurmProvider(
        account="bio",
        walltime="01:00:00",
        cores_per_node=1,
        mem_per_node=1,
        exclusive=False,
        init_blocks=2,
        min_blocks=2,
        max_blocks=2,
        scheduler_options=f"#SBATCH --omfs-method={method}",
        worker_init=f"export PATH={Path(sys.executable).parent}:$PATH",
    )
    # A task is tried again once its worker's heart has not beaten for the threshold: soon after a requeue, but not
    # while its job is suspended.
    threshold = 20 if method == "requeue" else 3600
    executor = HighThroughputExecutor(
        "slurm",
        provider=provider,
        address="127.0.0.1",
        max_workers_per_node=1,
        heartbeat_period=5,
        heartbeat_threshold=threshold,
    )
    with parsl.load(Config(executors=[executor], retries=5, strategy="none", run_dir=f"{folder}/runinfo")):
        found = [task.result() for task in [wait(folder, number) for number in (0, 1)]]
    print(json.dumps(sorted(found)))


main()
