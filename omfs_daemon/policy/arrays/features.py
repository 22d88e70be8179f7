"""Slurm's feature expressions (sbatch(1), --constraint): AND, OR, brackets, counts."""

from __future__ import annotations

import re
from functools import lru_cache

_COUNT = re.compile(r"\*\d+")
_TOKEN = re.compile(r"[&|,()\[\]]|[^&|,()\[\]\s]+")


@lru_cache(maxsize=4096)
def satisfies(expression: str, features: frozenset[str]) -> bool:
    """Whether a node with these features satisfies the expression.

    ``&`` and ``,`` are AND, ``|`` is OR, evaluated left to right as in Slurm. Counts (``a*2``) and the brackets of
    matching OR (``[rack1|rack2]``) are ignored: each node is checked by itself. No node satisfies an expression that
    cannot be parsed; such a job is left to Slurm.
    """
    tokens = _TOKEN.findall(_COUNT.sub("", expression))
    value, rest = _expression(tokens, features)
    return bool(value) and not rest


def _expression(tokens: list[str], features: frozenset[str]) -> tuple[bool | None, list[str]]:
    value, tokens = _operand(tokens, features)
    while tokens and tokens[0] in "&|,":
        operator = tokens[0]
        right, tokens = _operand(tokens[1:], features)
        if value is None or right is None:
            return None, tokens
        value = (value or right) if operator == "|" else (value and right)
    return value, tokens


def _operand(tokens: list[str], features: frozenset[str]) -> tuple[bool | None, list[str]]:
    if not tokens:
        return None, []
    head, rest = tokens[0], tokens[1:]
    if head in "([":
        value, rest = _expression(rest, features)
        if not rest or rest[0] not in ")]":
            return None, rest
        return value, rest[1:]
    if head in "&|,)]":
        return None, tokens
    return head in features, rest
