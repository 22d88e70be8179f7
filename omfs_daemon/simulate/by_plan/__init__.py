"""OMFS in virtual time by the daemon's own planner and gate: for machines of nodes, and to hold the kernel to."""
