"""Random small scenarios for OMFS, with everything in them that can go wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.workload.workload import PreemptMode, workload


def tree(**percents: float) -> AccountTree:
    """``tree(bio=50, bio__genes=40)``: two underscores part a child from its parent."""
    parts = [(name.split("__"), percent) for name, percent in percents.items()]
    return AccountTree([Entitlement(n[-1], Fraction(p), n[-2] if len(n) > 1 else "") for n, p in parts])


def rules(owners: AccountTree, quantum: float = 0.0) -> Rules:
    return Rules(
        tree=owners,
        quantum=quantum,
        max_preemptions_per_hour=1000,
        max_preemptions_per_cycle=1000,
        methods=BUILT_IN_TRAITS,
        unmatched=REGULAR,
    )


TREES = (
    tree(bio=50, physics=50),
    tree(bio=25, physics=50),
    tree(bio=70, physics=10, maths=20),
    tree(bio=50, bio__genes=50, bio__cells=50, physics=50, physics__stars=40),
    tree(bio=60, bio__genes=30, bio__cells=40, physics=30),
)


def random_scenario(seed: int, jobs: int = 30, nodes: bool = False) -> Scenario:
    """A busy machine; one account often comes first and borrows. Most times are whole seconds, so that many things fall
    on one instant."""
    draw = np.random.default_rng(seed)
    owners = TREES[draw.integers(len(TREES))]
    names = (*(entitlement.name for entitlement in owners.entitlements), "stranger", "other stranger")
    preemptible = [PreemptMode.KILL, PreemptMode.CHECKPOINT, PreemptMode.SWAP]
    modes = (
        [*preemptible, *preemptible, PreemptMode.NEVER],
        preemptible,
        [PreemptMode.KILL],
        [PreemptMode.CHECKPOINT],
        [PreemptMode.SWAP],
    )[draw.integers(5)]
    per_node = int(draw.integers(2, 5))
    machine = Machine(4 * per_node, 4) if nodes else Machine(int(draw.integers(4, 25)))
    count = int(draw.integers(2, jobs + 1))
    span = int(draw.choice([1, 30, 200, 600]))
    widest = int(draw.choice([3, machine.cpus // 2 + 1, machine.cpus + 1]))
    run = draw.integers(0 if draw.random() < 0.2 else 1, int(draw.choice([5, 60, 300, 9000])), count).astype(float)
    if draw.random() < 0.3:
        run += draw.random(count)
    account = draw.integers(0, len(names), count)
    account[: count // 2] = np.where(draw.random(count // 2) < 0.7, account[0], account[: count // 2])
    work = workload(
        "random",
        np.sort(draw.integers(0, span, count)).astype(float),
        draw.integers(1, widest + 1, count),
        run,
        accounts=names,
        limit=run * draw.choice([1, 1, 2, 5], count),
        account=account,
        urgent=draw.random(count) < draw.choice([0.0, 0.0, 0.1, 0.4]),
        mode=draw.choice(np.array(modes), count),
        memory=draw.integers(0, 50, count).astype(float),
    )
    rules = Rules(
        tree=owners,
        methods=BUILT_IN_TRAITS,
        unmatched=REGULAR,
        quantum=float(draw.choice([0, 0, 1, 5, 30])),
        max_preemptions_per_hour=int(draw.choice([1, 2, 4, 1000])),
        max_preemptions_per_cycle=int(draw.choice([1, 3, 64])),
        urgent_may_take_entitled=bool(draw.random() < 0.7),
    )
    link = Link(each=float(draw.choice([1, 5, np.inf])), together=float(draw.choice([2, 20, np.inf])))
    costs = CostModel(
        latency=float(draw.choice([0, 0, 1, 7])), kill=float(draw.choice([0, 2])),
        write=link, read=link, swap_out=link, swap_in=link, area=float(draw.choice([0, 40, 120, np.inf, np.inf])),
    )  # fmt: skip
    return Scenario(work, machine, costs=costs, rules=rules, seed=seed)
