"""Recorded workloads: the Standard Workload Format, Mira's CSV, and a table of our own."""
