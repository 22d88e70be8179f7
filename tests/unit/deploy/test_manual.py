"""The manual pages: what is in them, and that groff and mandoc have nothing to say about them."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from deploy.manual import roff
from deploy.manual.pages import all_pages
from omfs_daemon.cli.main import COMMANDS, app
from omfs_daemon.config.class_section import ClassSection
from omfs_daemon.config.schema import Config
from omfs_daemon.omfs_run.arguments import make_parser
from tests.support.waiting import LIMIT

DAY = date(2026, 1, 2)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages(DAY)


@pytest.fixture(scope="module")
def directory(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("man")
    for name, text in pages.items():
        (where / name).write_text(text, encoding="ascii")
    return where


def printed(*command: str | Path) -> str:
    """All that a command prints, on stderr, too."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False
    )
    return done.stdout


def parts(command: Any) -> list[Any]:
    return [command, *getattr(command, "commands", {}).values()]


def test_there_is_a_page_for_each_program_and_command(pages: dict[str, str]) -> None:
    programs = {"omfs.1", "omfs-run.1", "omfs.toml.5", "omfsd.8"}
    assert set(pages) == programs | {f"omfs-{name}.1" for name in COMMANDS}


@pytest.mark.system
def test_mandoc_and_groff_have_no_warning(directory: Path, pages: dict[str, str]) -> None:
    files = [directory / name for name in sorted(pages)]
    assert printed("mandoc", "-T", "lint", "-W", "warning", *files) == ""
    assert printed("groff", "-ww", "-man", "-T", "utf8", "-z", *files) == ""


@pytest.mark.system
def test_a_warning_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.1"
    wrong.write_text(".TH WRONG 1\n.SH\n.XX\n")
    assert "WARNING" in printed("mandoc", "-T", "lint", "-W", "warning", wrong)
    assert "warning" in printed("groff", "-ww", "-man", "-T", "utf8", "-z", wrong)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_option_and_subcommand_is_in_the_page(pages: dict[str, str], name: str) -> None:
    command = get_command(app).commands[name].load()  # type: ignore[attr-defined]
    page = pages[f"omfs-{name}.1"]
    for part in parts(command)[1:]:
        assert f'.SS "{roff.escape(f"omfs {name} {part.name}")}"' in page
    for part in parts(command):
        for option in part.params:
            label, text = option.get_help_record(part.context_class(part, terminal_width=200))
            assert roff.bold(label) in page
            assert roff.escape(text.split()[0]) in page


def test_each_key_of_the_configuration_is_in_its_page(pages: dict[str, str]) -> None:
    page = pages["omfs.toml.5"]
    for title in ("[policy]", "[entitlements.NAME]", "[[class]]", "[[node_license]]"):
        assert f'.SS "{roff.escape(title)}"' in page
    assert page.count(".SS ") == len(Config.model_fields)
    for key in (*ClassSection.model_fields, *Config.model_fields["policy"].annotation.model_fields):  # type: ignore
        assert f".TP\n{roff.bold(key)}\n" in page


def test_omfs_run_s_options_are_in_its_page(pages: dict[str, str]) -> None:
    for action in make_parser()._actions:
        assert all(roff.escape(option) in pages["omfs-run.1"] for option in action.option_strings)


def test_pages_change_with_the_day_only(pages: dict[str, str]) -> None:
    later = all_pages(date(2027, 3, 4))
    assert {name: text.replace("2027-03-04", "2026-01-02") for name, text in later.items()} == pages


@pytest.mark.system
@pytest.mark.parametrize(
    "text", [".SH no section", "'no request", r"a \fBbackslash\fR \n(yy", '"quotes" and ~^`', "--option -x", "ü ∞"]
)
def test_no_text_is_taken_for_roff(tmp_path: Path, text: str) -> None:
    file = tmp_path / "page.1"
    sections = [roff.Section("DESCRIPTION", [*roff.item(text, text), *roff.example(text), *roff.paragraphs(text)])]
    file.write_text(roff.page("page", 1, DAY, "text", sections), encoding="ascii")
    assert printed("mandoc", "-T", "lint", "-W", "warning", file) == ""
    rendered = printed("sh", "-c", f"groff -man -T utf8 -P -c -P -b -P -u {file}")
    assert rendered.count(text) >= 3
