"""Text as man(7) wants it: ASCII, with nothing in it that roff could take for a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import pairwise
from textwrap import wrap
from typing import NamedTuple

from omfs_daemon import __version__

_WIDTH = 78
_AS_IT_IS = "\b"
_LITERAL = re.compile(r"`([^`]+)`")


class Section(NamedTuple):
    """``lines``: roff, as :func:`paragraph`, :func:`item` and :func:`example` make it."""

    title: str
    lines: Sequence[str]


def page(name: str, number: int, day: date, summary: str, sections: Iterable[Section]) -> str:
    """A whole page; sections without lines are left out. ``summary``: one line for whatis(1)."""
    head = f'.TH {escape(name.upper())} {number} {day.isoformat()} "omfs-daemon {__version__}" "omfs-daemon"'
    lines = [head, ".SH NAME", f"{escape(name)} \\- {inline(summary.rstrip('.'))}"]
    for section in sections:
        if section.lines:
            lines += [f'.SH "{section.title}"', *section.lines]
    # A heading begins a paragraph by itself.
    kept = [line for before, line in pairwise(["", *lines]) if line != ".PP" or not before.startswith((".SH", ".SS"))]
    return "\n".join(kept) + "\n"


def subsection(title: str) -> str:
    return f'.SS "{escape(title)}"'


def paragraphs(text: str) -> list[str]:
    """Paragraphs are separated by empty lines; one that begins with typer's mark for it is kept as it is."""
    lines = []
    for part in text.strip().split("\n\n"):
        lines += example(*part.splitlines()[1:]) if part.startswith(_AS_IT_IS) else [".PP", *_wrapped(part)]
    return lines


def item(label: str, *texts: str) -> list[str]:
    """A term, as it is typed, with its explanation."""
    filled = [text for text in texts if text]
    lines = [".TP", bold(label), *(_wrapped(filled[0]) if filled else ["\\&"])]
    for text in filled[1:]:
        lines += [".IP", *_wrapped(text)]
    return lines


def example(*lines: str) -> list[str]:
    """Lines as they are."""
    return [".PP", ".in +4n", ".EX", *(_guarded(escape(line)) for line in lines), ".EE", ".in"]


def see_also(*pages: str) -> Section:
    """Each as ``name(number)``."""
    words = [f"\\fB{escape(name)}\\fR({number})" for name, number in (page[:-1].split("(") for page in pages)]
    return Section("SEE ALSO", [",\n".join(words)])


def bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


def inline(text: str) -> str:
    """``text`` on one line; what is in backticks is bold."""
    parts = _LITERAL.split(" ".join(text.split()))
    return "".join(bold(part) if place % 2 else escape(part) for place, part in enumerate(parts))


def escape(text: str) -> str:
    """No character keeps a meaning of its own, quotation marks in macros' arguments included."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    text = text.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)


def _wrapped(text: str) -> list[str]:
    return [_guarded(line) for line in wrap(inline(text), _WIDTH, break_long_words=False, break_on_hyphens=False)]


def _guarded(line: str) -> str:
    return f"\\&{line}" if line.startswith(".") else line
