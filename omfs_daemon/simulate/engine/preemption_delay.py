"""How long it takes to preempt several jobs for one; a plain function that kernels compile unchanged."""

from __future__ import annotations

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.policy.rules import laws


def preemption_seconds(
    victims: laws.Numbers,
    preemption: Floats,
    queueing: Floats,
    pinned: Bools,
) -> float:
    """Seconds until the last victim has freed its CPUs: each takes its own time (``preemption``), and all that are
    written to disk share one link, as do all that are swapped (``pinned``; UJFB, Equation 3)."""
    longest, written, swapped = 0.0, 0.0, 0.0
    for job in victims:
        longest = max(longest, float(preemption[job]))
        if pinned[job]:
            swapped += float(queueing[job])
        else:
            written += float(queueing[job])
    return max(longest, max(written, swapped))
