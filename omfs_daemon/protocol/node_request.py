"""Version, size, actions and keys of a request to omfs-node, and where a job's memory is according to its response.

The daemon and omfs-node must agree on them.
"""

VERSION = 1
MAX_BYTES = 64 * 1024
PROBE, OUT, IN, LOOK = ACTIONS = "probe", "out", "in", "look"
KEYS = ("version", "do", "method", "node", "job", "uid", "timeout", "continue", "suspended", "options", "slurm")
RUNNING, MOVED_OUT, MIXED, NO_PROCESS = STATES = "running", "out", "mixed", "none"
