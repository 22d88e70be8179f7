"""Exit codes that slurm.conf lists in RequeueExitHold: omfs-run, the daemon's check and the fake must agree."""



STOPPED, HELD, MISUSED = 101, 102, 109  # exit codes; RequeueExitHold=101-109 holds the job after each
