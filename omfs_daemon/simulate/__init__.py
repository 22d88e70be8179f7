"""The simulator: workloads, machines and policies in virtual time."""
