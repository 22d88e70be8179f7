"""Nodes that were down, drained, or reserved: lines as sacctmgr of Slurm 22.05 prints them."""

from __future__ import annotations

from math import inf

from omfs_daemon.accounting.nodes_away import AwayRow, nodes_away

REGISTERED = "|1795549611|Unknown|cpu=8,mem=2G\n"


def test_a_node_that_is_still_away() -> None:
    events = f"{REGISTERED}n1|100|200|billing=4,cpu=4,mem=1G\nn2|150|Unknown|cpu=4\nn3|x|200|cpu=4\nn4|100|200|\n"
    assert nodes_away(events, "") == [AwayRow(100, 200, 4), AwayRow(150, inf, 4)]


def test_a_node_that_is_drained_in_a_reservation_for_maintenance_is_away_once() -> None:
    events = "n1|100|200|cpu=4\nn1|350|500|cpu=4\n"
    maintenance = "150|400|MAINT,OVERLAP,SPEC_NODES|cpu=8|0.000000|n[1-2]\n"
    found = sorted(nodes_away(events, maintenance))
    assert found == [AwayRow(100, 200, 4), AwayRow(150, 400, 4), AwayRow(200, 400, 4), AwayRow(400, 500, 4)]


def test_of_other_reservations_what_no_job_used_is_away() -> None:
    course = "1000|2000|SPEC_NODES|cpu=40|250.000000|n[1-10]\n"
    used_whole = "1000|2000|SPEC_NODES|cpu=40|0.000000|n[1-10]\n"
    assert nodes_away("", course + used_whole) == [AwayRow(1000, 2000, 10)]


def test_lines_that_say_nothing() -> None:
    lines = "1000|1000|MAINT|cpu=4|0|n1\n|2000|MAINT|cpu=4|0|n1\n1000|2000|MAINT|mem=4|0|n1\n1000|2000|MAINT|cpu=4|0|\n"
    assert nodes_away("garbage\n", lines + "1000|2000||cpu=4|many|n1\nx\n") == []
