"""What commands print: harmless text, times and sizes, tables of accounts."""

from __future__ import annotations

import pytest

from omfs_daemon.daemon.api.status_view import AccountView
from omfs_daemon.errors import ConfigError, DeniedError, OmfsError, UnansweredError, UnreachableError
from omfs_daemon.terminal.account_table import account_table
from omfs_daemon.terminal.exit_status import Exit, exit_code
from omfs_daemon.terminal.output import cell, clean, directory_option, show, size_text, span, speed_text, when


def test_clean_and_span() -> None:
    assert clean("a\tb\x07\u202ec é 漢") == "a\ufffdb\ufffd\ufffdc é 漢"
    assert [span(seconds) for seconds in (0.04, 9.96, 119, 1800, 86400, 200_000)] == [
        "0.0 s",
        "10.0 s",
        "119 s",
        "30 min",
        "24.0 h",
        "2.3 d",
    ]


def test_a_cell_is_never_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show(cell("[red]x[/red]\x1b[2J"))
    assert capsys.readouterr().out == "[red]x[/red]\ufffd[2J\n"


def test_sizes_and_speeds() -> None:
    assert (size_text(1_500_000_000), size_text(23_000_000)) == ("1.5 GB", "23 MB")
    assert speed_text(1.0, 0.4e9) == "1 s + 0.4 GB/s"
    assert (speed_text(0.0, None), speed_text(2.5, None), speed_text(0.0, 2e9)) == ("at once", "2.5 s", "2 GB/s")


def test_what_never_happened_has_no_time() -> None:
    assert when(None) == "never"
    assert when(0.0).startswith(("1970-01-01T", "1969-12-31T"))


def test_an_empty_directory_is_not_the_current_one() -> None:
    with pytest.raises(ConfigError, match="a directory is needed"):
        directory_option("")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), Exit.INPUT),
        (UnreachableError("x"), Exit.UNREACHABLE),
        (UnansweredError("x"), Exit.UNREACHABLE),
        (DeniedError("x"), Exit.DENIED),
        (OmfsError("x"), Exit.NO),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: OmfsError, code: Exit) -> None:
    assert exit_code(error) is code


def row(account: str, parent: str = "") -> AccountView:
    return {
        "account": account,
        "parent": parent,
        "percent": 50.0,
        "entitled": 8,
        "used": 12,
        "borrowed": 4,
        "lent": 0,
        "pending": 3,
    }


def test_accounts_are_below_their_parents_and_zeros_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show(account_table([row("genes", "bio"), row("bio"), row("physics")]))
    lines = [line.strip("│").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [cells[0].rstrip() for cells in lines] == [" bio", "   genes", " physics"]
    assert [word.strip() for word in lines[0][1:]] == ["50", "8", "12", "4", "", "3"]
