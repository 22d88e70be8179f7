"""``omfs``: the command line of operators and users."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from omfs_daemon import __version__
from omfs_daemon.cli.lazy_command import CommandEntry, LazyCommand, LazyGroup
from omfs_daemon.terminal.exit_status import EXIT_CODES, run_plainly
from omfs_daemon.terminal.session import Session

COMMANDS: Mapping[str, CommandEntry] = {
    "status": CommandEntry(
        "omfs_daemon.cli.status:status",
        "Show how the cluster is shared among the accounts now.",
        "Example: omfs status --json | jq .cluster",
    ),
    "plan": CommandEntry(
        "omfs_daemon.cli.plan:plan",
        "Show what omfsd would do now, without doing it.",
        "Example: omfs plan",
    ),
    "why": CommandEntry(
        "omfs_daemon.cli.why:why",
        "Explain why a job waits or runs, and show its history.",
        "Example: omfs why 1234",
    ),
    "when": CommandEntry(
        "omfs_daemon.cli.when:when_jobs_start",
        "Say when waiting jobs will start, and with what certainty.",
        "Example: omfs when 1234 1235",
    ),
    "where": CommandEntry(
        "omfs_daemon.cli.where:where_to_submit",
        "Say where a job would start first: on which cluster, in which partition, on how many nodes.",
        "Example: omfs where job.sh, or omfs where -- --ntasks=64 --time=2:00:00",
    ),
    "predict": CommandEntry(
        "omfs_daemon.cli.predict:app", "Say how long jobs will run, and how good that was for those that have ended."
    ),
    "history": CommandEntry(
        "omfs_daemon.cli.history:history",
        "List past preemptions, newest first, and what they cost.",
        "Example: omfs history --since 2d --limit 50",
    ),
    "shadow": CommandEntry(
        "omfs_daemon.cli.shadow:shadow",
        "Show what omfsd would have done in a dry run, by account and class.",
        "Example: omfs shadow --since 7d",
    ),
    "release": CommandEntry(
        "omfs_daemon.cli.exempt:release_job",
        "Let a held job go, whatever rule holds it.",
        "Example: omfs release 1234",
    ),
    "exempt": CommandEntry(
        "omfs_daemon.cli.exempt:app",
        "Exempt jobs from being preempted: single ones, or all of a user or an account.",
    ),
    "pause": CommandEntry(
        "omfs_daemon.cli.pause:pause",
        "Make no new decisions until `omfs resume`.",
        'Example: omfs pause --reason "maintenance of the file system"',
    ),
    "resume": CommandEntry("omfs_daemon.cli.pause:resume", "End a pause.", "Example: omfs resume"),
    "check": CommandEntry(
        "omfs_daemon.cli.check:check",
        "Check Slurm's settings and the daemon, and suggest fixes.",
        "Example: omfs check",
    ),
    "demo": CommandEntry(
        "omfs_daemon.cli.demo:demo",
        "Run a demonstration of about a minute on a private Slurm.",
        "Example: omfs demo --fake",
    ),
    "failsafe": CommandEntry(
        "omfs_daemon.cli.failsafe:failsafe",
        "Release everything that a dead omfsd held.",
        "Example: omfs failsafe",
    ),
    "entitlements": CommandEntry(
        "omfs_daemon.cli.entitlements:app", "Show and change the entitlements of the accounts."
    ),
    "config": CommandEntry(
        "omfs_daemon.cli.configuration:app", "Show and check the configuration file; works without the daemon."
    ),
    "methods": CommandEntry(
        "omfs_daemon.cli.methods:app",
        "List the methods by which jobs can be preempted, and where each can be used now.",
    ),
    "report": CommandEntry(
        "omfs_daemon.cli.report:report",
        "Say where idle cores came from and what would have fitted into the holes before large jobs.",
        "Example: omfs report --log CEA-Curie-2011-2.1-cln.swf.gz --out result",
    ),
    "whatif": CommandEntry(
        "omfs_daemon.cli.simulation.whatif:whatif",
        "Replay a recorded period with the present configuration and with a changed one; compare the accounts.",
        "Example: omfs whatif --set entitlements.physics=40 --since 30d",
    ),
    "advise": CommandEntry(
        "omfs_daemon.cli.simulation.advise:advise",
        "Say which time limits are asked far too high, and how much sooner jobs would have started with lower ones.",
        "Example: omfs advise --since 90d, or omfs advise --trace hpc2n.swf.gz",
    ),
    "simulate": CommandEntry(
        "omfs_daemon.cli.simulation.simulate:simulate",
        "Replay a recorded or generated workload under a policy, and report the results.",
        "Example: omfs simulate --trace hpc2n.swf.gz --policy easy --procs 240 --out result",
    ),
    "sweep": CommandEntry(
        "omfs_daemon.cli.simulation.sweep:sweep",
        "Simulate every combination of the options that are repeated, and put the figures in one table.",
        "Example: omfs sweep --generate 20000 --procs 512 --policy easy --policy omfs --quantum 600 --out result",
    ),
    "optimum": CommandEntry(
        "omfs_daemon.cli.simulation.optimum:optimum",
        "Find the best schedule of a small log in hindsight: a yardstick for policies.",
        "Example: omfs optimum --trace log.csv --procs 8192 --layout aligned:512 --out result",
    ),
    "experiment": CommandEntry("omfs_daemon.cli.simulation.experiment:app", "Reproduce published experiments."),
}
"""In the order of the help, those for research last; a test holds the help texts equal to the first lines of the
commands' own."""


class OmfsCommands(LazyGroup):
    """All commands of ``omfs``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in COMMANDS.items():
            self.add_command(LazyCommand(name, entry))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--socket`` may stand behind the command, too."""
        return super().parse_args(ctx, _with_socket_first(args))


def _with_socket_first(args: list[str]) -> list[str]:
    own = args[: args.index("--")] if "--" in args else args
    for place, word in enumerate(own):
        if word == "--socket" or word.startswith("--socket="):
            end = place + (2 if word == "--socket" else 1)
            return [*args[place:end], *args[:place], *args[end:]]
    return args


app = typer.Typer(
    cls=OmfsCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"omfs {__version__}")
        raise typer.Exit()


@app.callback()
def omfs_options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar="OMFS_CONFIG", help="The configuration; default: /etc/omfs/omfs.toml."),
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="The daemon's socket, if not the one of the configuration.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Memoryless fair share and urgent jobs beside Slurm: see what omfsd does and why, and change its settings.

    Start with `omfs status`. `omfs why JOB` shows the history of one job.
    """
    context.obj = Session(config, socket)


def run() -> None:
    """The console script ``omfs``."""
    run_plainly(app, "omfs")
