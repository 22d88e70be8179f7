"""The account tree and its entitlements.

A percentage is of the parent's entitlement, like shares in Slurm's account tree. What an account's children leave
over belongs to jobs that are submitted to the account itself. What the top accounts leave over belongs to
``(others)``: all accounts that are not named.

An entitlement may also be a number of CPUs. Where those of the accounts below one account come to more than it has, as
when nodes are down, all of them are cut in proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from omfs_daemon.errors import ConfigError

OTHERS = "(others)"
_MOST_LEVELS = 100


@dataclass(frozen=True, slots=True)
class Entitlement:
    """``percent`` (0 to 100) of the parent's entitlement, or ``cpus``, and then ``percent`` is 0; ``parent`` is "" for
    a top account."""

    name: str
    percent: Fraction
    parent: str = ""
    cpus: int | None = None


@dataclass(frozen=True, slots=True)
class AccountNode:
    """A node of the tree.

    ``path``: indices from itself up to its top account; ``entitlement``: fraction of the cluster's CPUs, 0 where it is
    a number of CPUs, or a part of one.
    """

    index: int
    name: str
    entitlement: Fraction
    path: tuple[int, ...]
    is_leaf: bool

    @property
    def is_others(self) -> bool:
        """Whether it stands for all accounts without an entitlement."""
        return self.name == OTHERS

    @property
    def owns_all(self) -> bool:
        """Whether it is entitled to every CPU, so that nobody else is to any."""
        return self.entitlement == 1


@dataclass(slots=True)
class _Level:
    """The accounts below ``parent`` (an index; None at the top), and who gets what they leave (``rest``: an index)."""

    parent: int | None
    children: list[tuple[int, Entitlement]]
    rest: int = 0


class AccountTree:
    """The account tree, checked. Every job belongs to one leaf and counts at every account on the leaf's path.

    Errors: ConfigError.
    """

    def __init__(self, entitlements: Iterable[Entitlement]) -> None:
        self.entitlements: tuple[Entitlement, ...] = tuple(entitlements)
        children = _checked_children(self.entitlements)
        self.entities: list[AccountNode] = []
        self._leaf_of: dict[str, AccountNode] = {}
        self._levels: list[_Level] = []
        self._counts_cpus = any(entitlement.cpus is not None for entitlement in self.entitlements)
        self._add_children("", Fraction(1), (), children)

    def _add_children(
        self,
        parent: str,
        entitlement: Fraction,
        above: tuple[int, ...],
        children: Mapping[str, Sequence[Entitlement]],
    ) -> None:
        left = Fraction(1)
        level = _Level(above[0] if above else None, [])
        self._levels.append(level)
        for child in children.get(parent, ()):
            part = child.percent / 100
            left -= part
            level.children.append((len(self.entities), child))
            is_leaf = child.name not in children
            entity = self._add(child.name, entitlement * part, above, is_leaf)
            if is_leaf:
                self._leaf_of[child.name] = entity
            else:
                self._add_children(child.name, entitlement * part, entity.path, children)
        name = f"{parent}{OTHERS}" if parent else OTHERS
        self._leaf_of[parent] = self._add(name, entitlement * left, above, True)
        level.rest = self._leaf_of[parent].index

    def _add(self, name: str, entitlement: Fraction, above: tuple[int, ...], is_leaf: bool) -> AccountNode:
        index = len(self.entities)
        entity = AccountNode(index, name, entitlement, (index, *above), is_leaf)
        self.entities.append(entity)
        return entity

    def leaf(self, account: str) -> AccountNode:
        """The leaf at which jobs of this Slurm account count; ``(others)`` for an account that is not named."""
        return self._leaf_of.get(account) or self._leaf_of[""]

    def entitled(self, cpus: int) -> list[int]:
        """Each entity's CPUs of ``cpus``, by index: floor(entitlement * cpus) (OMFS, Algorithm 1, line 22)."""
        if not self._counts_cpus:
            return [floor(entity.entitlement * cpus) for entity in self.entities]
        exact = [Fraction(0)] * len(self.entities)
        for level in self._levels:  # parents come first
            whole = Fraction(cpus) if level.parent is None else exact[level.parent]
            wanted = [
                whole * one.percent / 100 if one.cpus is None else Fraction(one.cpus) for _, one in level.children
            ]
            total = sum(wanted, Fraction(0))
            part = whole / total if total > whole else Fraction(1)
            for (index, _), amount in zip(level.children, wanted, strict=True):
                exact[index] = amount * part
            exact[level.rest] = max(Fraction(0), whole - total)
        return [floor(amount) for amount in exact]

    @property
    def is_flat(self) -> bool:
        """Whether no account is below another."""
        return all(entity.is_leaf for entity in self.entities)

    def entity(self, name: str) -> AccountNode | None:
        return next((entity for entity in self.entities if entity.name == name), None)


def cut_text(entitlements: Sequence[Entitlement], cpus: int) -> str:
    """What each account comes to, where those at the top would own more than ``cpus``; "" if not, or without any."""
    tops = [one for one in entitlements if not one.parent]
    wanted = sum((cpus * one.percent / 100 + (one.cpus or 0) for one in tops), Fraction(0))
    if not 0 < cpus < wanted:
        return ""
    tree, names = AccountTree(entitlements), {one.name for one in entitlements}
    entitled = tree.entitled(cpus)
    each = ", ".join(f"{entity.name} {entitled[entity.index]}" for entity in tree.entities if entity.name in names)
    return f"the top accounts would own {floor(wanted)} of {cpus} CPUs, so all are cut in proportion: {each}"


def _checked_children(entitlements: Sequence[Entitlement]) -> dict[str, list[Entitlement]]:
    """The entitlements by parent. Errors: ConfigError."""
    names = {entitlement.name for entitlement in entitlements}
    children: dict[str, list[Entitlement]] = {}
    seen: set[str] = set()
    for entitlement in entitlements:
        if not entitlement.name or entitlement.name.endswith(OTHERS):
            raise ConfigError(
                f"account name {entitlement.name!r} is not allowed: names are not empty and not {OTHERS!r}"
            )
        if entitlement.name in seen:
            raise ConfigError(f"account {entitlement.name!r} is named twice: each account has one entitlement")
        if not 0 <= entitlement.percent <= 100:
            raise ConfigError(
                f"account {entitlement.name!r}: percent = {_text(entitlement.percent)} is not allowed: 0 to 100"
            )
        if entitlement.parent and entitlement.parent not in names:
            raise ConfigError(
                f"account {entitlement.name!r}: parent = {entitlement.parent!r} is not among the accounts: "
                f"name it first, or leave the parent out"
            )
        if entitlement.cpus is not None and entitlement.cpus < 0:
            raise ConfigError(f"account {entitlement.name!r}: cpus = {entitlement.cpus} is not allowed: at least 0")
        seen.add(entitlement.name)
        children.setdefault(entitlement.parent, []).append(entitlement)
    for parent, group in children.items():
        total = sum((entitlement.percent for entitlement in group), Fraction(0))
        if total > 100:
            names_text = ", ".join(f"{entitlement.name} {_text(entitlement.percent)}" for entitlement in group)
            where = f"under {parent!r}" if parent else "at the top"
            raise ConfigError(f"the accounts {where} add up to {_text(total)} %: at most 100 ({names_text})")
        if total == 100 and (counted := [f"{one.name} {one.cpus} CPUs" for one in group if one.cpus]):
            where = f"under {parent!r}" if parent else "at the top"
            raise ConfigError(f"the accounts {where} add up to 100 %: nothing is left for {', '.join(counted)}")
    _check_parents(entitlements)
    return children


def _check_parents(entitlements: Sequence[Entitlement]) -> None:
    """No cycles, and no account so far down that walking to it fills the stack."""
    parent_of = {entitlement.name: entitlement.parent for entitlement in entitlements}
    for name in parent_of:
        walked = [name]
        while parent := parent_of[walked[-1]]:
            if parent in walked:
                raise ConfigError(f"accounts form a cycle: {' -> '.join([*walked, parent])}; a parent must lie above")
            walked.append(parent)
            if len(walked) > _MOST_LEVELS:
                raise ConfigError(f"account {name!r}: must have at most {_MOST_LEVELS - 1} accounts above it")


def _text(value: Fraction) -> str:
    return f"{float(value):g}"
