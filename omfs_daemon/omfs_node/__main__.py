"""Entry point of ``python3 -m omfs_daemon.omfs_node``."""

import sys

from omfs_daemon.omfs_node.main import main

sys.exit(main())
