"""How long something lasts, in words: the same on screens and in pages."""

from __future__ import annotations


def span(seconds: float) -> str:
    """``0.4 s``, ``90 s``, ``12 min``, ``3.5 h``, ``2.1 d``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"
