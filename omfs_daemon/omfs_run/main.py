"""Entry point of omfs-run."""

import sys

from omfs_daemon.omfs_run.signals import Inbox


def run() -> None:
    """Run the program; ends with its exit code."""
    # Before anything else, even imports: until then a signal would end the job.
    inbox = Inbox()
    inbox.install()
    from omfs_daemon.omfs_run import flow

    code = flow.flow(sys.argv[1:], inbox)
    inbox.close()
    sys.exit(code)


if __name__ == "__main__":
    run()
