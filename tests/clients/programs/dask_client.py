"""Has dask-jobqueue run two tasks on two workers, which wait for a file; prints what they return.

Usage: dask_client.py FOLDER METHOD
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client


def wait(folder: str, number: int) -> int:
    Path(folder, f"started-{number}-{time.time_ns()}").touch()
    while not Path(folder, "end").exists():
        time.sleep(0.1)
    return number


def main() -> None:
    folder, method = sys.argv[1:]
    # Else dask cancels a requeued job 15 seconds after its worker has gone.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    cluster = SLURMCluster(
        cores=1,
        processes=1,
        memory="500MB",
        account="bio",
        walltime="01:00:00",
        log_directory=folder,
        scheduler_options={"host": "127.0.0.1", "dashboard": False},
        job_extra_directives=[f"--omfs-method={method}"],
    )
    with cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2)
        found = client.gather([client.submit(wait, folder, number, pure=False) for number in (0, 1)])
    print(json.dumps(sorted(found)))


if __name__ == "__main__":
    main()
