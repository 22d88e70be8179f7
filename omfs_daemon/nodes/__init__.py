"""How the daemon has things done on compute nodes: the way there, and what is under way."""
