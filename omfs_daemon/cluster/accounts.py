"""Who owns how much: the tree of accounts, entitlements, and the rule who may take from whom.

Percentages are of the parent's share, as shares in Slurm's account tree are. What the children of an account
leave over belongs to its *rest*: jobs submitted to the account itself. What the top accounts leave over
belongs to ``(others)``: all accounts that are not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from omfs_daemon.errors import ConfigError

OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class AccountShare:
    """``percent`` (0 to 100) of the parent's share; ``parent`` is "" for a top account."""

    name: str
    percent: Fraction
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Entity:
    """A node of the tree. ``path`` holds the indices from itself up to its top account; ``share`` is of the machine."""

    index: int
    name: str
    share: Fraction
    path: tuple[int, ...]
    is_leaf: bool


class AccountTree:
    """The checked tree. Every job belongs to one leaf; usage counts on the leaf's whole path."""

    def __init__(self, shares: Iterable[AccountShare]) -> None:
        self.shares: tuple[AccountShare, ...] = tuple(shares)
        children = _checked_children(self.shares)
        self.entities: list[Entity] = []
        self._leaf_of: dict[str, Entity] = {}
        self._grow("", Fraction(1), (), children)

    def _grow(
        self,
        parent: str,
        share: Fraction,
        above: tuple[int, ...],
        children: Mapping[str, Sequence[AccountShare]],
    ) -> None:
        left = Fraction(1)
        for child in children.get(parent, ()):
            part = child.percent / 100
            left -= part
            is_leaf = child.name not in children
            entity = self._add(child.name, share * part, above, is_leaf)
            if is_leaf:
                self._leaf_of[child.name] = entity
            else:
                self._grow(child.name, share * part, entity.path, children)
        name = f"{parent}{OTHERS}" if parent else OTHERS
        self._leaf_of[parent] = self._add(name, share * left, above, True)

    def _add(self, name: str, share: Fraction, above: tuple[int, ...], is_leaf: bool) -> Entity:
        index = len(self.entities)
        entity = Entity(index, name, share, (index, *above), is_leaf)
        self.entities.append(entity)
        return entity

    def leaf(self, account: str) -> Entity:
        """Where a job of this Slurm account counts; an account that is not named counts under ``(others)``."""
        return self._leaf_of.get(account) or self._leaf_of[""]

    def entitled(self, cpus: int) -> list[int]:
        """CPUs that each entity owns of ``cpus``, by index: floor(share * cpus) (OMFS, Algorithm 1, line 22)."""
        return [floor(entity.share * cpus) for entity in self.entities]

    def entity(self, name: str) -> Entity | None:
        return next((entity for entity in self.entities if entity.name == name), None)


def _checked_children(shares: Sequence[AccountShare]) -> dict[str, list[AccountShare]]:
    """The shares by parent, or a ConfigError that says what is wrong with them."""
    names = {share.name for share in shares}
    children: dict[str, list[AccountShare]] = {}
    seen: set[str] = set()
    for share in shares:
        if not share.name or share.name.endswith(OTHERS):
            raise ConfigError(f"account name {share.name!r} is not allowed: names are not empty and not {OTHERS!r}")
        if share.name in seen:
            raise ConfigError(f"account {share.name!r} is named twice: each account has one entitlement")
        if not 0 <= share.percent <= 100:
            raise ConfigError(f"account {share.name!r}: percent = {_text(share.percent)} is not allowed: 0 to 100")
        if share.parent and share.parent not in names:
            raise ConfigError(
                f"account {share.name!r}: parent = {share.parent!r} is not among the accounts: "
                f"name it first, or leave the parent out"
            )
        seen.add(share.name)
        children.setdefault(share.parent, []).append(share)
    for parent, group in children.items():
        total = sum((share.percent for share in group), Fraction(0))
        if total > 100:
            names_text = ", ".join(f"{share.name} {_text(share.percent)}" for share in group)
            where = f"under {parent!r}" if parent else "at the top"
            raise ConfigError(f"the accounts {where} add up to {_text(total)} %: at most 100 ({names_text})")
    _refuse_cycles(shares)
    return children


def _refuse_cycles(shares: Sequence[AccountShare]) -> None:
    parent_of = {share.name: share.parent for share in shares}
    for name in parent_of:
        walked = [name]
        while parent := parent_of[walked[-1]]:
            if parent in walked:
                raise ConfigError(f"accounts form a cycle: {' -> '.join([*walked, parent])}; a parent must lie above")
            walked.append(parent)


def _text(value: Fraction) -> str:
    return f"{float(value):g}"
