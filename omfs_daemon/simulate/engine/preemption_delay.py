"""How long it takes to stop several jobs for one, as a plain function that a kernel compiles as it stands."""

from __future__ import annotations

from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.workload.workload import Bools
from omfs_daemon.simulate.workload.workload import Floats


def set_seconds(
    victims: laws.Numbers,
    stop: Floats,
    queueing: Floats,
    pinned: Bools,
) -> float:
    """Seconds until the last of these jobs is gone: each takes its own time (``stop``), and all that are written to
    disk share one link, as do all that are swapped (``pinned``; UJFB, Equation 3)."""
    longest, written, swapped = 0.0, 0.0, 0.0
    for job in victims:
        longest = max(longest, float(stop[job]))
        if pinned[job]:
            swapped += float(queueing[job])
        else:
            written += float(queueing[job])
    return max(longest, max(written, swapped))
