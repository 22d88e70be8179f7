"""What the experiment replays: accounts whose demands come at different times, from a model or recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.simulate.engine.conventions import Conventions, replayed_run_times
from omfs_daemon.simulate.engine.scenario import Machine, owners
from omfs_daemon.simulate.workload.generate import Model, generated, offered_load
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.read_options import ReadOptions
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

LOAD = 0.95
JOBS = 6000
CPUS = 512
PERCENT = {"physics": 40, "biology": 30, "chemistry": 20, "geology": 10}

# Sizes are those of the machine of 128 nodes that the model was fitted to, so that most fit into an account's part.
WIDEST = 128
# In turn, each account comes with so many times its usual share of the jobs, in so many stretches of equal many jobs.
BUSY, STRETCHES = 4.0, 8

TRACE = "SDSC-DS-2004-2.1-cln.swf.gz"
TRACE_CPUS = 1664
LARGEST = 5
SQUEEZED = 0.9
# Bytes for each CPU, uniform, where a trace has none (Agung et al. 2021, section V-B).
_MEMORY = (0.5e9, 1.25e9)


@dataclass(frozen=True, slots=True)
class ZviStudy:
    """A workload, the machine and who owns what of it.

    left_out       how many jobs were taken out because they are wider than what their account owns
    left_out_work  share of all CPU-seconds that these would have used
    notes          what a recorded one rests on, in sentences
    """

    workload: Workload
    machine: Machine
    tree: AccountTree
    left_out: int
    left_out_work: float
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def load(self) -> float:
        """Offered, of jobs that end at their limit."""
        run = replayed_run_times(self.workload, Conventions())
        return offered_load(replace(self.workload, run=run), self.machine.cpus)


def from_model(seed: int, jobs: int = JOBS) -> ZviStudy:
    """A workload of the model without the jobs that hard partition would refuse; their load is ``LOAD``."""
    tree = AccountTree(Entitlement(name, Fraction(percent)) for name, percent in PERCENT.items())
    everything = _with_accounts(generated(_model(jobs, LOAD), seed), seed)
    narrow = _within(everything, tree, CPUS)
    work = everything.cpus * everything.run
    # Only arrivals depend on the load, so the same jobs are narrow again.
    denser = LOAD * float(work.sum() / work[narrow].sum())
    kept = replace(_with_accounts(generated(_model(jobs, denser), seed), seed).take(narrow), name=f"generated-{seed}")
    return ZviStudy(kept, Machine(CPUS), tree, int((~narrow).sum()), _part(work, ~narrow))


def from_model_with_wide(seed: int, jobs: int = JOBS) -> ZviStudy:
    """The same jobs and the wide ones too, of the same load."""
    narrow = from_model(seed, jobs)
    everything = replace(_with_accounts(generated(_model(jobs, LOAD), seed), seed), name=f"generated-wide-{seed}")
    return replace(narrow, workload=everything, left_out=0, left_out_work=0.0)


def recorded(path: Path) -> tuple[ZviStudy, ZviStudy]:
    """SDSC DataStar by group, as it was and with all times between submissions shortened to a load of ``SQUEEZED``.

    The groups that used most are accounts, all others together are one more. Each owns what it used of the machine's
    work on the average over the whole trace, in tenths of a percent.
    """
    loaded = load_trace(path, ReadOptions(accounts="group"))
    everything = loaded.workload
    work = everything.cpus * replayed_run_times(everything, Conventions())
    used = np.bincount(everything.account, weights=work)
    largest = np.argsort(-used, kind="stable")[:LARGEST].tolist()
    tree = AccountTree(
        Entitlement(everything.accounts[index], Fraction(round(1000 * float(used[index] / used.sum())), 10))
        for index in largest
    )
    narrow = _within(everything, tree, TRACE_CPUS)
    kept = everything.take(narrow)
    draw = np.random.default_rng(0).uniform(*_MEMORY, len(kept))
    kept = replace(kept, name="sdsc-ds", memory=np.rint(kept.cpus * draw))
    thanks = tuple(f"acknowledged, as its terms ask: {whom}" for whom in loaded.facts.acknowledge)
    notes = (
        *loaded.report.sentences(),
        f"its {LARGEST} largest groups are accounts, all other groups together are one more, (others); each owns what "
        "it used on the average over the whole trace: the partition that suits the trace best",
        "memory is not recorded: 0.5 to 1.25 GB for each CPU, drawn",
        *thanks,
    )
    study = ZviStudy(kept, Machine(TRACE_CPUS), tree, int((~narrow).sum()), _part(work, ~narrow), notes)
    squeeze = study.load / SQUEEZED
    denser = replace(kept, name=f"{kept.name}-dense", submit=kept.submit * squeeze)
    return study, replace(study, workload=denser, notes=(f"{denser.name}: times between submissions * {squeeze:.3f}",))


def owned_cpus(study: ZviStudy) -> Mapping[str, int]:
    """CPUs that each account owns, those that own nothing left out."""
    owned = study.tree.entitled(study.machine.cpus)
    return {entity.name: owned[entity.index] for entity in study.tree.entities if entity.is_leaf and entity.entitlement}


def _model(jobs: int, load: float) -> Model:
    """Sizes up to ``WIDEST`` on a machine of ``CPUS``: the model counts load on a machine as wide as its jobs."""
    return Model(jobs, WIDEST, load * CPUS / WIDEST, modes={PreemptMode.CHECKPOINT: 1.0})


def _with_accounts(jobs: Workload, seed: int) -> Workload:
    """The account of each job is drawn by what the accounts own, but in turn one of them is busy."""
    owned = np.array(list(PERCENT.values()), dtype=np.float64)
    stretch = np.arange(len(jobs)) * STRETCHES // len(jobs)
    busy = np.where(stretch[:, None] % len(owned) == np.arange(len(owned)), BUSY, 1.0)
    upto = np.cumsum(owned * busy, axis=1)
    drawn = np.random.default_rng([seed, 1]).random((len(jobs), 1)) * upto[:, -1:]
    return replace(jobs, accounts=tuple(PERCENT), account=(drawn >= upto).sum(axis=1).astype(np.int64))


def _within(jobs: Workload, tree: AccountTree, cpus: int) -> Bools:
    """Which jobs are no wider than what their account owns."""
    narrow: Bools = jobs.cpus <= np.array(tree.entitled(cpus), dtype=np.int64)[owners(jobs, tree)]
    return narrow


def _part(work: Floats, chosen: Bools) -> float:
    return float(work[chosen].sum() / work.sum())
