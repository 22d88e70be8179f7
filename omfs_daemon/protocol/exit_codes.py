"""Exit codes of omfs-run after which Slurm holds the job: those that slurm.conf lists in RequeueExitHold."""

STOPPED, HELD, MISUSED = 101, 102, 109  # exit codes; RequeueExitHold=101-109 holds the job after each

HOLD_CODES = range(STOPPED, MISUSED + 1)

REQUEUE_EXIT_HOLD = "{}-{}".format(STOPPED, MISUSED)
"""The value of RequeueExitHold: Slurm requeues a batch job that ends with one of HOLD_CODES, held."""
