"""The greatest plausible numbers: anything above is a mistake or in other units.

CPUS     of a machine, and of a job: twice the largest machine so far. UJFB keeps 40 bytes for each
NODES    of a machine; the daemon's planner keeps half a kilobyte for each
SECONDS  three centuries; times since the epoch are within them, such in milliseconds are not
AHEAD    seconds by which a time in a log may be later than now: a year
BYTES    of one job: an exabyte
NUMBER   that names a job, a user or a group: up to it a float64 holds every whole number
JOBS     of a generated workload
"""

from __future__ import annotations

CPUS = 20_000_000
NODES = 1_000_000
SECONDS = 10_000_000_000
AHEAD = 366 * 86_400
BYTES = 10**18
NUMBER = 2**53 - 1
JOBS = 10_000_000
