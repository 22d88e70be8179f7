"""Slurm's feature expressions (sbatch(1), --constraint): AND, OR, brackets, counts."""

from __future__ import annotations

import re
from functools import lru_cache

_COUNT = re.compile(r"\*[ \t-\r]*\+?\d+")  # as strtol(3) parses it, which Slurm does
_MOST_NESTED = 64  # Slurm itself refuses brackets in brackets
_TOKEN = re.compile(r"[&|,()\[\]]|[^&|,()\[\]\s]+")


@lru_cache(maxsize=4096)
def satisfies(expression: str, features: frozenset[str]) -> bool:
    """Whether a node with these features satisfies the expression.

    ``&`` and ``,`` are AND, ``|`` is OR, evaluated left to right as in Slurm. Counts (``a*2``) and the brackets of
    matching OR (``[rack1|rack2]``) are ignored: each node is checked by itself. No node satisfies an expression that
    cannot be parsed; such a job is left to Slurm.
    """
    tokens = _TOKEN.findall(_COUNT.sub("", expression))[::-1]
    value = _expression(tokens, features, _MOST_NESTED)
    return bool(value) and not tokens


def _expression(tokens: list[str], features: frozenset[str], depth: int) -> bool | None:
    """Takes an expression off the tokens, the next of which is last; None for one that cannot be parsed."""
    value = _operand(tokens, features, depth)
    while value is not None and tokens and tokens[-1] in "&|,":
        operator = tokens.pop()
        right = _operand(tokens, features, depth)
        if right is None:
            return None
        value = (value or right) if operator == "|" else (value and right)
    return value


def _operand(tokens: list[str], features: frozenset[str], depth: int) -> bool | None:
    if not tokens or tokens[-1] in "&|,)]" or not depth:
        return None
    head = tokens.pop()
    if head not in "([":
        return head in features
    value = _expression(tokens, features, depth - 1)
    return value if tokens and tokens.pop() in ")]" else None
