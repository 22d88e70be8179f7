"""Published experiments, done again: each is a function that replays workloads and writes tables and one page."""
