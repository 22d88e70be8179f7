"""``omfs-run``: where it begins."""

import sys

from omfs_daemon.launcher.signals import Inbox


def run() -> None:
    """The entry point."""
    # Before anything else, the imports too: until then a signal would end the job.
    inbox = Inbox()
    inbox.install()
    from omfs_daemon.launcher import flow

    sys.exit(flow.flow(sys.argv[1:], inbox))


if __name__ == "__main__":
    run()
