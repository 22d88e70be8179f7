"""omfs-daemon: memoryless fair share and urgent jobs beside Slurm."""

__version__ = "0.1.0"
