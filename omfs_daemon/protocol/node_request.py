"""Version, size, actions and keys of a request: daemon and omfs-node must agree."""



VERSION = 1
LIMIT = 64 * 1024  # bytes
_ACTIONS = ("probe", "out", "in", "look")
_KEYS = ("version", "do", "method", "node", "job", "uid", "timeout", "continue", "suspended", "options", "slurm")
