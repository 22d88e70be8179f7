"""Reproductions of published experiments: each replays workloads and writes tables and one page."""
