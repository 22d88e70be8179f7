"""``omfs-run``: where it begins."""

import sys

from omfs_daemon.omfs_run.signals import Inbox


def run() -> None:
    """The entry point."""
    # Before anything else, the imports too: until then a signal would end the job.
    inbox = Inbox()
    inbox.install()
    from omfs_daemon.omfs_run import flow

    code = flow.flow(sys.argv[1:], inbox)
    inbox.close()
    sys.exit(code)


if __name__ == "__main__":
    run()
