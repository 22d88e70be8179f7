"""What becomes of programs that are preempted, by their shape: what ``make shapes`` found, and who has which."""
