"""PySlurm over the fake Slurm: ``pyslurm/`` is imported by the adapter's process, the rest lives in the tests'."""
