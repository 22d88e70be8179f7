"""The page of ``omfs-run``, from its argparse command line."""

from __future__ import annotations

import argparse
from datetime import date

from deploy.manual.roff import Section, bold, example, item, page, paragraphs, see_also
from omfs_daemon.omfs_run.arguments import make_parser

_ENVIRONMENT = {
    "OMFS_METHOD": "The method, if --method is not given.",
    "OMFS_CKPT_DIR": "Checkpoints are kept in OMFS_CKPT_DIR/JOBID, if --dir is not given.",
    "OMFS_CRIU": "The helper omfs-criu, if it is not where omfs-run searches.",
}


def omfs_run_page(day: date) -> str:
    parser = make_parser()
    epilog = " ".join((parser.epilog or "").split())
    methods, _, codes = epilog.partition(" exit codes: ")
    options = [action for action in parser._actions if action.option_strings]
    sections = [
        Section("SYNOPSIS", [bold(parser.format_usage().removeprefix("usage: ").strip())]),
        Section("DESCRIPTION", [*paragraphs(parser.description or ""), *paragraphs(methods)]),
        Section("OPTIONS", [line for action in options for line in item(_label(action), action.help or "")]),
        Section("EXIT STATUS", paragraphs(codes[:1].upper() + codes[1:])),
        Section("ENVIRONMENT", [line for name, text in _ENVIRONMENT.items() for line in item(name, text)]),
        Section("EXAMPLES", example("#!/bin/sh", "#SBATCH --omfs-method=dmtcp", "exec omfs-run ./a.out")),
        see_also("omfs(1)", "omfsd(8)", "sbatch(1)"),
    ]
    return page("omfs-run", 1, day, "run a program in a Slurm job that can be preempted", sections)


def _label(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    value = "|".join(action.choices) if action.choices else (action.metavar or action.dest.upper())
    return f"{', '.join(action.option_strings)} {value}"
