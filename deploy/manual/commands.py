"""The pages of ``omfs``, its commands, and ``omfsd``, from their typer command lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from typer.main import get_command

from deploy.manual.roff import Section, bold, example, item, page, paragraphs, see_also, subsection
from omfs_daemon.cli.main import COMMANDS, app
from omfs_daemon.cli.omfsd import app as omfsd_app
from omfs_daemon.config.schema import Config
from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.terminal.exit_status import EXIT_CODES

_EXAMPLE = "Example: "


def omfs_page(day: date) -> str:
    command = get_command(app)
    summary, description = _help(command)
    commands = [line for name, entry in COMMANDS.items() for line in item(_dashed(name) + "(1)", entry.help)]
    sections = [
        _synopsis("omfs", command),
        Section("DESCRIPTION", paragraphs(f"{summary}\n\n{description}")),
        Section("COMMANDS", commands),
        Section("OPTIONS", _options(command)),
        _exit_status(),
        _files(),
        see_also("omfsd(8)", "omfs.toml(5)", "omfs-run(1)"),
    ]
    return page("omfs", 1, day, "see and change what omfsd does in Slurm", sections)


def command_page(name: str, day: date) -> str:
    """One command, with its subcommands if it is a group."""
    command = get_command(app).commands[name].load()  # type: ignore[attr-defined]
    summary, description = _help(command)
    inner = getattr(command, "commands", {})
    sections = [
        _synopsis(f"omfs {name}", command),
        Section("DESCRIPTION", paragraphs(f"{summary}\n\n{description}")),
        Section("COMMANDS", [line for own in inner.values() for line in _subcommand(name, own)]),
        Section("OPTIONS", _options(command)),
        Section("EXAMPLES", _examples(command)),
        _exit_status(),
        see_also("omfs(1)", "omfsd(8)", "omfs.toml(5)"),
    ]
    return page(_dashed(name), 1, day, COMMANDS[name].help, sections)


def omfsd_page(day: date) -> str:
    command = get_command(omfsd_app)
    summary, description = _help(command)
    signals = [
        *item("SIGHUP", "Read the configuration again. One that is wrong is refused, with a line in the log."),
        *item("SIGTERM, SIGINT", "End. Jobs stay as they are; `omfs-failsafe(1)` releases what is held."),
    ]
    sections = [
        _synopsis("omfsd", command),
        Section("DESCRIPTION", paragraphs(f"{summary}\n\n{description}")),
        Section("OPTIONS", _options(command)),
        Section("EXAMPLES", _examples(command)),
        Section("SIGNALS", signals),
        _files(),
        see_also("omfs(1)", "omfs.toml(5)", "omfs-run(1)", "slurmctld(8)"),
    ]
    return page("omfsd", 8, day, "daemon for fair share and urgent jobs beside Slurm", [*sections])


def command_names() -> Sequence[str]:
    return list(COMMANDS)


def _dashed(name: str) -> str:
    return f"omfs-{name}"


def _help(command: Any) -> tuple[str, str]:
    summary, _, description = (command.help or "").partition("\n\n")
    return " ".join(summary.split()), description


def _synopsis(name: str, command: Any) -> Section:
    pieces = [piece.strip("{}") for piece in command.collect_usage_pieces(_context(command))]
    return Section("SYNOPSIS", [" ".join([bold(name), *(bold(piece).replace("\\fB", "\\fI") for piece in pieces)])])


def _subcommand(group: str, command: Any) -> list[str]:
    summary, description = _help(command)
    (synopsis,) = _synopsis(f"omfs {group} {command.name}", command).lines
    return [
        subsection(f"omfs {group} {command.name}"),
        synopsis,
        *paragraphs(f"{summary}\n\n{description}"),
        *_options(command),
        *_examples(command),
    ]


def _options(command: Any) -> list[str]:
    """Arguments and options, except for --help, which all commands have."""
    records = [own.get_help_record(_context(command)) for own in command.params]
    return [line for record in records if record for line in item(record[0], " ".join(record[1].split()))]


def _examples(command: Any) -> list[str]:
    first, _, rest = (command.epilog or "").partition(" Exit code")
    if not first.startswith(_EXAMPLE):
        return []
    return [*example(first.removeprefix(_EXAMPLE).removesuffix(".")), *(paragraphs(f"Exit code{rest}") if rest else [])]


def _exit_status() -> Section:
    codes = " ".join(EXIT_CODES.split()).removeprefix("Exit codes: ").removesuffix(".").split("; ")
    return Section("EXIT STATUS", [line for code in codes for line in item(*code.split(" ", 1))])


def _files() -> Section:
    daemon = Config().daemon
    files = {
        DEFAULT_PATH: "The configuration: omfs.toml(5).",
        daemon.state_dir: "The journal, changed entitlements, their audit log, the history of preemptions.",
        daemon.run_dir: "The control socket and the heartbeat.",
    }
    return Section("FILES", [line for path, text in files.items() for line in item(str(path), text)])


def _context(command: Any) -> Any:
    return command.context_class(command, info_name=command.name, terminal_width=200)
