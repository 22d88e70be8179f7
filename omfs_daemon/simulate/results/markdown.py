"""Pieces of a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def image(title: str, name: str) -> str:
    """A plot that lies beside the page as ``name.png`` and ``name.svg``."""
    return f"![{title}]({name}.png)\n\n[as SVG]({name}.svg)"
