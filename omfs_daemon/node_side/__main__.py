"""``python3 -m omfs_daemon.node_side``; the zipapp's entry is ``main:main``."""

import sys

from .main import main

sys.exit(main())
