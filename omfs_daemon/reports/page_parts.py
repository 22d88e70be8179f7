"""What a page is made of, and how it is written as Markdown and as HTML that needs nothing else."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from omfs_daemon.reports.report_plots import ReportPlot
from omfs_daemon.simulate.results.markdown import image, markdown_table

Part = str | ReportPlot | tuple[Sequence[str], Sequence[Sequence[str]]]
"""A paragraph, or a heading that begins with #; a plot; a table's header and rows."""

_NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?( (%|s|min|h|d))?")

# Plots and tables that are too wide for a telephone scroll by themselves; on paper nothing is torn apart.
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; } p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; } img { display: block; width: 100%; min-width: 40rem; }
table { border-collapse: collapse; font-size: 14px; } th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; }
th { text-align: left; vertical-align: bottom; } td { min-width: 3rem; }
td:nth-child(-n+2) { min-width: 5rem; } th:first-child, td:first-child { padding-left: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media print {
  @page { margin: 15mm; } body { margin: 0; max-width: none; font-size: 11pt; } h2 { margin-top: 1.5rem; }
  .wide { overflow: visible; } img { min-width: 0; } table { font-size: 9pt; } th, td { padding: .15rem .4rem; }
  h1, h2, h2 + p { break-after: avoid; } tr, .plot { break-inside: avoid; }
  table.short { break-inside: avoid; } tr:nth-child(-n+3) { break-after: avoid; }
}
"""
_SHORT = 16
"""Rows of a table that is not torn apart on paper."""


def markdown_page(parts: Sequence[Part]) -> str:
    return "\n\n".join(_as_markdown(part) for part in parts) + "\n"


def html_page(title: str, parts: Sequence[Part], plots: Path) -> str:
    """``plots``: the directory in which they are."""
    body = "\n".join(_as_html(part, plots) for part in parts)
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">{viewport}<title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _as_markdown(part: Part) -> str:
    if isinstance(part, ReportPlot):
        return image(_plain_markdown(part.title), part.name)
    if isinstance(part, str):
        return part
    header, rows = _without_empty_columns(*part)
    return markdown_table(header, [[_plain_markdown(text) for text in row] for row in rows])


def _plain_markdown(text: str) -> str:
    """No table is broken, and no tag or link begins."""
    for char, harmless_char in (("|", "&#124;"), ("<", "&lt;"), ("[", "&#91;"), ("`", "&#96;")):
        text = text.replace(char, harmless_char)
    return text


def _as_html(part: Part, plots: Path) -> str:
    if isinstance(part, ReportPlot):
        data = base64.b64encode((plots / f"{part.name}.svg").read_bytes()).decode()
        drawn = f'<img alt="{escape(part.title)}" src="data:image/svg+xml;base64,{data}">'
        return f'<div class="wide plot">{drawn}</div>'
    if isinstance(part, str):
        level = len(part) - len(part.lstrip("#"))
        if level:
            return f"<h{level}>{escape(part[level + 1 :])}</h{level}>"
        return f"<p>{escape(part).replace(' %', '&nbsp;%')}</p>"
    header, rows = _without_empty_columns(*part)
    # A column is of numbers if nothing else is in it.
    kinds = [
        ' class="number"' if all(_NUMBER.fullmatch(text) for text in column if text) else ""
        for column in zip(*rows, strict=True)
    ] or [""] * len(header)
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, header, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{escape(text)}</td>" for kind, text in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    short = ' class="short"' if len(rows) <= _SHORT else ""
    table = f"<table{short}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _without_empty_columns(
    header: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Without what the log does not say of any row."""
    kept = [at for at in range(len(header)) if not rows or any(row[at] for row in rows)]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows]
