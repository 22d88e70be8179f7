"""dmtcp_launch: starts a coordinator and becomes the program."""

import os
import shutil
import sys

import stand_in


def main(arguments):
    if arguments == ["--version"]:
        stand_in.version_or_hang("dmtcp_launch")
        return 0
    options = stand_in.Options(arguments)
    if not options.rest:
        print("Usage: dmtcp_launch [OPTIONS] <command> [args...]")
        return stand_in.FAILED
    program = shutil.which(options.rest[0])
    if program is None:
        sys.stderr.write("*** ERROR:  Executable to run w/ DMTCP appears not to be readable,\n***         or no such ")
        sys.stderr.write(f"executable in path.\n\n{options.rest[0]}\n")
        return stand_in.FAILED
    # The path is kept as given, and resolved when a checkpoint is written.
    os.environ["DMTCP_CHECKPOINT_DIR"] = options.ckptdir or os.getcwd()
    os.environ["STAND_IN_DMTCP"] = stand_in.settings()[0]
    os.environ["STAND_IN_PORT"] = str(stand_in.begin_coordinator(options))
    os.environ["STAND_IN_DIRECTORY"] = os.environ["DMTCP_CHECKPOINT_DIR"]
    os.environ.pop("STAND_IN_IMAGE", None)
    os.execv(program, options.rest)  # noqa: S606
