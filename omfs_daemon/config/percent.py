"""Percentages as they are written: exact decimal fractions, so that 29 % of 100 CPUs is 29 and not 28."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal, InvalidOperation, localcontext
from fractions import Fraction

_DIGITS = 20


def percent(value: object) -> Fraction:
    """The exact value of an integer, a Decimal or a decimal text such as ``"12.5"``; ValueError otherwise.

    Binary floats are taken by their shortest decimal text. The range is checked by ``AccountTree``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("must be a number from 0 to 100")
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError("must be a number from 0 to 100") from None
    # An exponent is bounded before it becomes a fraction: 1e-999999999 would fill the memory.
    if not number.is_finite() or not 0 <= number <= 100 or number.as_tuple().exponent < -100:  # type: ignore[operator]
        raise ValueError("must be a number from 0 to 100")
    return Fraction(number)


_CPUS = re.compile(r"cpus ?= ?([0-9]{1,9})")


def amount(value: object) -> tuple[Fraction, int | None]:
    """Percent and CPUs of an amount as people write it: ``"12.5"`` or ``"cpus=8"``; ValueError otherwise."""
    counted = _CPUS.fullmatch(value.strip()) if isinstance(value, str) else None
    if counted is not None:
        return Fraction(0), int(counted[1])
    try:
        return percent(value), None
    except ValueError:
        raise ValueError("must be a number from 0 to 100, or cpus=NUMBER") from None


def percent_text(value: Fraction) -> str:
    """The decimal text of a percentage; without an exact one it is cut, never rounded up over a limit."""
    with localcontext() as context:
        context.prec, context.rounding = 200, ROUND_DOWN
        number = Decimal(value.numerator) / Decimal(value.denominator)
        if Fraction(number) != value:
            number = number.quantize(Decimal(1).scaleb(-_DIGITS))
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
