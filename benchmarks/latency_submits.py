"""What sbatch itself takes: with the plug-in, and omfsd alive, stopped (SIGSTOP) or dead, beside a cluster without."""

from __future__ import annotations

import signal
import time

from benchmarks.latency_clusters import Cluster, regular

METHOD = "requeue"


def submits(without: Cluster, with_us: Cluster, repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """By state of omfsd: seconds of an sbatch there, and of one on the cluster ``without`` right after it. The jobs
    wait, for both machines are full."""
    daemon = with_us.omfsd
    if daemon is None:
        raise ValueError("there is no omfsd on that cluster")
    for cluster in (without, with_us):
        cluster.fill(METHOD)
    found: dict[str, list[tuple[float, float]]] = {"alive": [], "stopped": [], "dead": []}
    for _ in range(repetitions):
        found["alive"].append((_submit(with_us), _submit(without)))
        daemon.send(signal.SIGSTOP)
        try:
            found["stopped"].append((_submit(with_us), _submit(without)))
        finally:
            daemon.send(signal.SIGCONT)
    daemon.end(signal.SIGKILL)
    try:
        for _ in range(repetitions):
            found["dead"].append((_submit(with_us), _submit(without)))
    finally:
        daemon.start()
    return found


def _submit(cluster: Cluster) -> float:
    began = time.monotonic()
    cluster.submit("#!/bin/bash\nexec sleep 1\n", *regular(METHOD))
    return time.monotonic() - began
