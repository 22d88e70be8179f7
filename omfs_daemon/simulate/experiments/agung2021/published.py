"""What Agung et al. (2021) published, and what their public simulator gives.

The paper: "Preemptive Parallel Job Scheduling for Heterogeneous Systems Supporting Urgent Computing", IEEE Access 9,
doi 10.1109/ACCESS.2021.3053162. Most of its results are bars without numbers; these are all that it prints.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """``value`` as the paper prints it, ``where`` it does so."""

    value: float
    where: str


U_L = {
    ("SDSC-DS", "ujf"): Printed(62, "section V-B, Figure 10(c)"),
    ("SDSC-DS", "ujfb"): Printed(1.01, "section V-B, Figure 10(c)"),
    ("LANL-CM5", "ujfb"): Printed(1.02, "section V-B, Figure 11(c)"),
    ("SX-ACE", "fcfs"): Printed(90996.73, "Table 2"),
    ("SX-ACE", "ujf"): Printed(641.61, "Table 2"),
    ("SX-ACE", "conservative"): Printed(32853.86, "Table 2"),
    ("SX-ACE", "easy"): Printed(34688.48, "Table 2"),
    ("SX-ACE", "ujfb"): Printed(1.05, "Table 2"),
}
PREEMPTIONS = {
    ("SX-ACE", "fcfs"): Printed(0, "Table 2"),
    ("SX-ACE", "ujf"): Printed(0, "Table 2"),
    ("SX-ACE", "conservative"): Printed(0, "Table 2"),
    ("SX-ACE", "easy"): Printed(0, "Table 2"),
    ("SX-ACE", "ujfb"): Printed(28, "Table 2"),
}
# Share of all jobs that are urgent and have a slowdown above 2.
LATE = {("DWD", "ujfb"): Printed(0.059, "section V-D, Figure 17")}
# U_L with swaps 20 and 40 times as long, against U_L with the plain times: at most.
SLOWER_SWAPS = {"LANL-CM5": Printed(1.95, "section V-C, Figure 13")}


class Theirs(NamedTuple):
    """Means over regular jobs, seconds; and of urgent jobs."""

    response: float
    slowdown: float
    urgent_slowdown: float
    u_l: float
    preemptions: int


# Measured with the authors' public simulator, alea-urgent-sim, on the traces and urgent jobs that are used here.
THEIR_CODE = {
    ("SDSC-DS", "fcfs"): Theirs(35834, 291.16, 106.90, 491.51, 0),
    ("SDSC-DS", "ujf"): Theirs(35673, 289.73, 11.62, 62.81, 0),
    ("SDSC-DS", "conservative"): Theirs(12239, 19.61, 16.22, 96.99, 0),
    ("SDSC-DS", "easy"): Theirs(11707, 22.36, 17.30, 96.99, 0),
    ("SDSC-DS", "ujfb"): Theirs(12242, 19.65, 1.0156, 1.0771, 43),
    ("LANL-CM5", "fcfs"): Theirs(6113, 66.44, 8.752, 56.41, 0),
    ("LANL-CM5", "ujf"): Theirs(6113, 66.44, 2.801, 16.26, 0),
    ("LANL-CM5", "conservative"): Theirs(3302, 17.55, 5.992, 52.03, 0),
    ("LANL-CM5", "easy"): Theirs(3224, 16.17, 5.950, 52.03, 0),
    ("LANL-CM5", "ujfb"): Theirs(3303, 17.55, 1.0066, 1.0244, 27),
}
# The same with swaps of 0.09 to 0.23 s: 0.5 to 1.25 GB by Figure 9.
SMALL_SWAP = {("SDSC-DS", "ujfb"): Theirs(12242, 19.65, 1.0026, 1.0128, 43)}
