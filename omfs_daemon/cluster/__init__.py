"""What exists: jobs, nodes, partitions, accounts, and what the daemon remembers. Frozen, no I/O."""
