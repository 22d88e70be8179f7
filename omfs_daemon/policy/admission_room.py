"""How many CPUs of non-preemptible jobs may start at each account without asking the daemon.

The submit plug-in lets in so many between two plans. So nothing may be left over that the next plan could give to a
job that is held: both would use the same CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from omfs_daemon.policy.arrays.usage import Usage


def room_without_hold(usage: Usage, claims: Mapping[int, float]) -> tuple[int, ...]:
    """By entity of the account tree: CPUs that fit into its entitlement besides what runs or may start at any moment.

    ``claims``: CPUs that held jobs may be given by a later plan, by leaf; infinite for a leaf at which a job waits that
    could start, for those that come after it must not pass it. A claim takes from the accounts above no more than the
    leaf itself could still get.
    """
    tree = usage.tree
    left = [max(0, usage.entitled[entity.index] - usage.non_preemptible[entity.index]) for entity in tree.entities]
    claimed = [0] * len(left)
    for entity in reversed(tree.entities):  # every account comes after its parent
        wanted = claims.get(entity.index, 0) if entity.is_leaf else claimed[entity.index]
        claimed[entity.index] = left[entity.index] if wanted == inf else min(left[entity.index], int(wanted))
        if len(entity.path) > 1:
            claimed[entity.path[1]] += claimed[entity.index]
    return tuple(here - taken for here, taken in zip(left, claimed, strict=True))
