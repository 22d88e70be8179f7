"""Write the dashboards for Grafana: python3 -m deploy.grafana.generate"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from deploy.grafana.panels import Json, Query, dashboard, graph, labels, number, quantiles, variable

DIRECTORY = Path(__file__).parent / "dashboards"

_ACCOUNT = '$i, account="$account"'
_PROMISE = Query("omfs_entitlement_promise_seconds{$i}", "at most")


def overview() -> Json:
    return dashboard(
        "omfs-overview",
        "omfs: overview",
        "Who uses what, who waits, and what omfsd does about it.",
        [
            number("Age of what omfsd knows", "instance:omfs_observation_age:seconds{$i}", "s", red_from=60),
            number("Decides nothing", "omfs_blind{$i}", red_from=1),
            number("Preemptions under way", "omfs_preemptions_under_way{$i}"),
            number("Jobs preempted, waiting", "omfs_jobs_preempted{$i}"),
            number("Jobs held", "omfs_jobs_held{$i}"),
            number("Urgent jobs waiting", "omfs_urgent_jobs_waiting{$i}", red_from=1),
            graph("CPUs used", "short", Query("omfs_used_cpus{$i}", "{{account}}"), width=12),
            graph("CPUs owned", "short", Query("omfs_entitled_cpus{$i}", "{{account}}"), width=12),
            graph("CPUs borrowed", "short", Query("omfs_borrowed_cpus{$i}", "{{account}}")),
            graph("CPUs lent", "short", Query("omfs_lent_cpus{$i}", "{{account}}")),
            graph("CPUs that waiting jobs request", "short", Query("omfs_pending_cpus{$i}", "{{account}}")),
            graph(
                "Longest wait for what an account owns",
                "s",
                Query("omfs_entitled_wait_seconds{$i}", "{{account}}"),
                _PROMISE,
                text="Jobs that wait for nothing but nodes while their account is below its entitlement.",
            ),
            graph(
                "Jobs preempted in five minutes",
                "short",
                Query("sum by (policy, reason) (increase(omfs_preemptions_total{$i}[5m]))", "{{policy}}: {{reason}}"),
            ),
            quantiles("Time until the preemptor runs", "s", "omfs_reclaim_latency_seconds"),
            graph(
                "Why CPUs are idle",
                "short",
                Query("sum by (cause) (rate(omfs_idle_cpu_seconds_total{$i}[5m]))", "{{cause}}"),
                text="Idle CPUs by what keeps them idle, as in omfs report.",
            ),
            quantiles("Waits of started jobs", "s", "omfs_wait_seconds"),
        ],
    )


def account() -> Json:
    def line(metric: str, legend: str) -> Query:
        return Query(f"omfs_{metric}{{{_ACCOUNT}}}", legend)

    return dashboard(
        "omfs-account",
        "omfs: one account",
        "What one account owns, uses, lends, borrows, and waits for.",
        [
            number("Owns", f"omfs_entitled_cpus{{{_ACCOUNT}}}"),
            number("Uses", f"omfs_used_cpus{{{_ACCOUNT}}}"),
            number("Borrows", f"omfs_borrowed_cpus{{{_ACCOUNT}}}"),
            number("Lends", f"omfs_lent_cpus{{{_ACCOUNT}}}"),
            number("Its jobs request", f"omfs_pending_cpus{{{_ACCOUNT}}}"),
            number("Waits for what it owns", f"omfs_entitled_wait_seconds{{{_ACCOUNT}}}", "s"),
            graph("CPUs", "short", line("used_cpus", "used"), line("entitled_cpus", "owned"), width=12),
            graph("Lent and borrowed", "short", line("lent_cpus", "lent"), line("borrowed_cpus", "borrowed"), width=12),
            graph("CPUs that waiting jobs request", "short", line("pending_cpus", "requested"), width=12),
            graph(
                "Longest wait for what it owns",
                "s",
                line("entitled_wait_seconds", "waits"),
                _PROMISE,
                width=12,
            ),
        ],
        [variable("account", "omfs_entitled_cpus", several=False)],
    )


def urgent() -> Json:
    started = "omfs_urgent_start_latency_seconds"
    within = [
        Query(
            f'sum(increase({started}_bucket{{$i, le="{limit}.0"}}[1h])) / sum(increase({started}_count{{$i}}[1h]))',
            f"{limit} s",
        )
        for limit in (1, 2, 5)
    ]
    return dashboard(
        "omfs-urgent",
        "omfs: urgent jobs",
        "How soon urgent jobs start, and what waiting costs them.",
        [
            number("Waiting now", "omfs_urgent_jobs_waiting{$i}", red_from=1),
            number(
                "U_L in this time",
                "max_over_time(omfs_urgent_slowdown_max_ratio{$i}[$__range])",
                text="The greatest slowdown of an urgent job: from submission to end, divided by the run time.",
            ),
            number("Started in an hour", f"sum(increase({started}_count{{$i}}[1h]))"),
            number(
                "95 % start within", f"histogram_quantile(0.95, sum by (le) (rate({started}_bucket{{$i}}[1h])))", "s"
            ),
            number(
                "Mean slowdown in an hour",
                "sum(increase(omfs_urgent_slowdown_ratio_sum{$i}[1h]))"
                " / sum(increase(omfs_urgent_slowdown_ratio_count{$i}[1h]))",
            ),
            number("Jobs preempted for them", 'sum(increase(omfs_preemptions_total{$i, policy="urgent"}[1h]))'),
            graph("Waiting", "short", Query("omfs_urgent_jobs_waiting{$i}", "{{instance}}")),
            quantiles("From submission to start", "s", started, text="By Slurm's clock, in whole seconds."),
            graph("Share that starts within", "percentunit", *within),
            quantiles("Slowdown", "short", "omfs_urgent_slowdown_ratio"),
            graph("U_L so far", "short", Query("omfs_urgent_slowdown_max_ratio{$i}", "{{instance}}")),
            graph(
                "Jobs preempted for them in five minutes",
                "short",
                Query(
                    'sum by (method, outcome) (increase(omfs_preemptions_total{$i, policy="urgent"}[5m]))',
                    "{{method}}: {{outcome}}",
                ),
            ),
        ],
    )


def realtime() -> Json:
    slowdown, missed = "omfs_realtime_slowdown", "omfs_realtime_bound_missed_total"
    return dashboard(
        "omfs-realtime",
        "omfs: real-time jobs",
        "Whether real-time jobs start within the bound that they were promised, and what that costs others.",
        [
            number("Beyond their bound now", 'omfs_realtime_jobs{$i, state="late"}', red_from=1),
            number("Bounds missed in an hour", f"sum(increase({missed}{{$i}}[1h]))", red_from=1),
            number("Started in an hour", f"sum(increase({slowdown}_count{{$i}}[1h]))"),
            number("Jobs preempted for them", 'sum(increase(omfs_preemptions_total{$i, reason="realtime"}[1h]))'),
            graph("Real-time jobs", "short", Query("omfs_realtime_jobs{$i}", "{{state}}")),
            quantiles("Slowdown at their start", "short", slowdown),
            graph(
                "Bounds missed in five minutes",
                "short",
                Query(f"sum by (account) (increase({missed}{{$i}}[5m]))", "{{account}}"),
            ),
            quantiles("To plan and to validate", "s", "omfs_realtime_plan_seconds"),
        ],
    )


def _quantile(share: float, histogram: str) -> str:
    """Within an hour, of all together."""
    return f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{$i}}[1h])))"


def methods() -> Json:
    failed = 'sum(increase(omfs_preemptions_total{$i, outcome!="started"}[1h])) or vector(0)'
    return dashboard(
        "omfs-methods",
        "omfs: preemption methods",
        "How long each method takes, what it moves, and what work is lost.",
        [
            number("Jobs preempted in an hour", "sum(increase(omfs_preemptions_total{$i}[1h]))"),
            number("Of these in vain", failed),
            number("Most preemptions of one job", "omfs_job_preemptions_max{$i}", red_from=5),
            number("Jobs set apart", "omfs_jobs_set_apart{$i}", red_from=1),
            number("Work lost in an hour", "sum(increase(omfs_work_lost_seconds_total{$i}[1h])) or vector(0)", "s"),
            number("Licenses overdrawn", "sum(omfs_node_licenses_overdrawn{$i})", red_from=1),
            quantiles("Until a victim has freed its resources", "s", "omfs_preempt_seconds", "method"),
            quantiles("Until a job computes again", "s", "omfs_resume_seconds", "method"),
            quantiles("Slowest process of a job", "s", "omfs_preemption_delay_seconds", "method"),
            graph(
                "Memory moved",
                "Bps",
                Query("sum by (method, direction) (rate(omfs_moved_bytes_total{$i}[$r]))", "{{method}} {{direction}}"),
            ),
            quantiles("Memory moved out by a preemption", "bytes", "omfs_preemption_size_bytes", "method"),
            quantiles("Work lost by a preemption", "s", "omfs_preemption_lost_seconds", "method"),
            graph(
                "Outcomes in five minutes",
                "short",
                Query("sum by (method, outcome) (increase(omfs_preemptions_total{$i}[5m]))", "{{method}}: {{outcome}}"),
            ),
            graph(
                "Room on nodes",
                "bytes",
                Query("omfs_nodes_room_bytes{$i}", "{{method}}, all nodes"),
                Query("omfs_node_room_min_bytes{$i}", "{{method}}, fullest node"),
                text="For pageout: free swap space.",
            ),
            graph("Nodes on which it works", "short", Query("omfs_nodes_usable{$i}", "{{method}}")),
            graph(
                "Node licenses",
                "short",
                Query("omfs_node_licenses_used{$i}", "{{license}} used"),
                Query("omfs_node_licenses{$i}", "{{license}} there"),
                width=12,
            ),
            graph("Jobs that wait after a preemption", "short", Query("omfs_jobs_preempted{$i}"), width=12),
        ],
    )


def health() -> Json:
    return dashboard(
        "omfs-health",
        "omfs: health of omfsd and slurmctld",
        "Whether omfsd sees and decides, how fast Slurm answers, and what omfsd uses.",
        [
            number("Decides nothing", "omfs_blind{$i}", red_from=1),
            number("Paused", "omfs_paused{$i}", red_from=1),
            number("Dry run", "omfs_dry_run{$i}", red_from=1),
            number("Up for", "time() - process_start_time_seconds{$i}", "s"),
            number("Jobs set aside", "omfs_jobs_set_aside{$i}", red_from=1),
            number("Room for journal and history", "omfs_state_dir_free_bytes{$i}", "bytes"),
            labels("Versions", "omfs_build_info{$i}", "omfsd {{version}}, Slurm {{slurm_version}}"),
            labels("Way to Slurm", "omfs_gateway_info{$i}", "{{gateway}}"),
            number("Last answer of Slurm", "1000 * omfs_last_successful_poll_timestamp_seconds{$i}", "dateTimeFromNow"),
            number("Failed calls in an hour", "sum(increase(omfs_slurm_errors_total{$i}[1h]))", red_from=10),
            graph(
                "Of two omfsd: which one acts, epoch, takeovers",
                "short",
                Query("omfs_leader{$i}", "acts, {{instance}}"),
                Query("omfs_lease_epoch{$i}", "epoch, {{instance}}"),
                Query("omfs_takeovers_total{$i}", "takeovers, {{instance}}"),
                width=24,
            ),
            quantiles("slurmctld: time to answer a poll", "s", "omfs_poll_duration_seconds"),
            quantiles("omfsd: time of a cycle", "s", "omfs_cycle_duration_seconds"),
            graph("Age of what omfsd knows", "s", Query("instance:omfs_observation_age:seconds{$i}", "{{instance}}")),
            graph("Calls to Slurm", "cps", Query("rate(omfs_slurm_calls_total{$i}[$r])", "{{instance}}")),
            graph("Calls that failed", "cps", Query("rate(omfs_slurm_errors_total{$i}[$r])", "{{kind}}")),
            graph("CPU of omfsd", "percentunit", Query("rate(process_cpu_seconds_total{$i}[$r])", "{{instance}}")),
            graph(
                "Memory of omfsd",
                "bytes",
                Query("process_resident_memory_bytes{$i}", "resident"),
                Query("process_virtual_memory_bytes{$i}", "virtual"),
            ),
            graph(
                "Open files",
                "short",
                Query("process_open_fds{$i}", "open"),
                Query("process_max_fds{$i}", "at most"),
            ),
            graph(
                "Journal and history",
                "bytes",
                Query("omfs_journal_bytes{$i}", "journal"),
                Query("omfs_history_bytes{$i}", "history"),
            ),
            number("Jobs that predictions learn from", "omfs_predict_jobs{$i}"),
            graph("Predictions that held (p90)", "percentunit", Query("omfs_predict_p90_held_ratio{$i}", "{{what}}")),
            quantiles("Predicted run time over run time", "short", "omfs_predict_error_ratio"),
            quantiles("Error of predicted starts", "s", "omfs_predict_start_error_seconds"),
        ],
    )


def all_dashboards() -> Mapping[str, Json]:
    """By the name of the file."""
    makers = (overview, account, urgent, realtime, methods, health)
    return {maker.__name__: maker() for maker in makers}


def file_text(made: Json) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, made in all_dashboards().items():
        (DIRECTORY / f"{name}.json").write_text(file_text(made), encoding="utf-8")


if __name__ == "__main__":
    main()
