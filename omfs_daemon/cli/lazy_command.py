"""Commands that are imported only when they are run, so that each starts as fast as its own imports allow."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.plain_values import convert_plainly


class CommandEntry(NamedTuple):
    """``target``: ``module:function``, or ``module:app`` for a group of commands, which has its own ``epilog``."""

    target: str
    help: str
    epilog: str = ""


class PlainCommand(TyperCommand):
    """A command whose parameters are converted without pydantic."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx), self.callback)
        return super().parse_args(ctx, args)


class LazyCommand(TyperCommand):
    """Stands for a command in lists and completions."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, help=entry.help, rich_markup_mode=None)
        self._entry = entry

    def load(self) -> Any:
        """The command itself."""
        module, _, attribute = self._entry.target.partition(":")
        target = getattr(import_module(module), attribute)
        if isinstance(target, typer.Typer):
            command: Any = get_group(target)
        else:
            single = typer.Typer(rich_markup_mode=None, add_completion=False)
            single.command(cls=PlainCommand, epilog=self._entry.epilog)(target)
            command = get_command(single)
        command.name = self.name
        return command


class LazyGroup(FaultLine):
    """A command group that loads the command it is about to run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx), self.callback)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
