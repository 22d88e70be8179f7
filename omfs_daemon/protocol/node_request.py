"""Version, size, actions and keys of a request to omfs-node: the daemon and omfs-node must agree on them."""

VERSION = 1
MAX_BYTES = 64 * 1024
ACTIONS = ("probe", "out", "in", "look")
KEYS = ("version", "do", "method", "node", "job", "uid", "timeout", "continue", "suspended", "options", "slurm")
