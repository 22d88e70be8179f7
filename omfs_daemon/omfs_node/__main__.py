"""``python3 -m omfs_daemon.omfs_node``; the zipapp's entry is ``main:main``."""

import sys

from omfs_daemon.omfs_node.main import main

sys.exit(main())
