#!/bin/bash
# Record what a real Grid Engine writes: record_grid_engine.sh DIRECTORY
#
# As root in a throwaway Debian 12 with gridengine-master, -exec, and -client: one qmaster and one execd on this host run
# some jobs (an array, a parallel environment, failed, deleted, rescheduled, and limited ones). qsub refuses names with
# colons.
# Writes accounting, and qacct.txt with what qacct adds up.
set -eu
out=$1
root=/var/lib/gridengine
export SGE_ROOT=$root SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 SGE_CLUSTER_NAME=recorded
host=$(hostname)

mkdir -p $root/default/common /var/spool/gridengine/{qmaster/job_scripts,spooldb,execd}
chown -R sgeadmin:sgeadmin /var/spool/gridengine $root/default
echo "$host" > $root/default/common/act_qmaster
[ -e /var/spool/gridengine/spooldb/sge ] ||
    su -s /bin/sh -c "/usr/share/gridengine/scripts/init_cluster $root default /var/spool/gridengine/spooldb sgeadmin" sgeadmin
useradd -m alice 2>/dev/null || true
useradd -m bob 2>/dev/null || true

as() { # as USER COMMAND...
    local user=$1
    shift
    su -s /bin/bash -w SGE_ROOT,SGE_CELL,SGE_QMASTER_PORT,SGE_EXECD_PORT,SGE_CLUSTER_NAME "$user" -c "cd /tmp && $*"
}
wait_for() { # wait_for WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "waited too long for $what" >&2
    exit 1
}

/usr/lib/gridengine/sge_qmaster
wait_for qmaster qconf -sconf
as sgeadmin "qconf -am root" || true
qconf -as "$host" || true
qconf -ah "$host" || true
sed 's/^hostname .*/hostname '"$host"'/' > /tmp/exec_host <<END
hostname template
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
END
qconf -Ae /tmp/exec_host || true
printf 'group_name @allhosts\nhostlist %s\n' "$host" > /tmp/hosts
qconf -Ahgrp /tmp/hosts
cat > /tmp/pe <<END
pe_name mpi
slots 8
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule \$pe_slots
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
END
qconf -Ap /tmp/pe
qconf -sq > /tmp/queue
sed -i -e 's/^qname .*/qname all.q/' -e 's/^hostlist .*/hostlist @allhosts/' -e 's/^slots .*/slots 4/' \
    -e 's/^pe_list .*/pe_list mpi/' -e 's/^shell_start_mode .*/shell_start_mode unix_behavior/' \
    -e 's/^rerun .*/rerun TRUE/' -e 's/^load_thresholds .*/load_thresholds NONE/' /tmp/queue
qconf -Aq /tmp/queue
qconf -ssconf > /tmp/scheduler
sed -i -e 's/^schedule_interval .*/schedule_interval 0:0:1/' -e 's/^flush_submit_sec .*/flush_submit_sec 1/' \
    -e 's/^flush_finish_sec .*/flush_finish_sec 1/' /tmp/scheduler
qconf -Msconf /tmp/scheduler
/usr/lib/gridengine/sge_execd
wait_for execd sh -c 'qhost | tail -n 1 | grep -qv " - "'

submit() { # submit USER OPTIONS... : the job's number
    local user=$1
    shift
    as "$user" "qsub -terse -b y -o /dev/null -e /dev/null $*" | cut -d. -f1
}
submit alice "-t 1-5 -N array sleep 2"
submit alice "-pe mpi 3 -N parallel sleep 3"
submit bob "-N fails /bin/false"
submit bob "-N exits bash -c 'exit\ 7'"
submit bob "-N missing /no/such/program"
deleted=$(submit bob "-N deleted sleep 600")
wait_for "job $deleted" sh -c "qstat -s r -u '*' | grep -q deleted"
as bob "qdel $deleted"
waiting=$(submit bob "-h -N never sleep 1")
as bob "qdel $waiting"
again=$(submit alice "-r y -N again sleep 4")
wait_for "job $again" sh -c "qstat -s r -u '*' | grep -q again"
as sgeadmin "qmod -rj $again" || qmod -rj "$again"
submit alice "-l h_rt=2 -N limited sleep 600"
for number in 1 2 3; do submit bob "-N run$number sleep $number"; done
wait_for "all jobs" sh -c '[ -z "$(qstat -u "*")" ]'
accounting=$root/default/common/accounting
# qmaster writes records every 15 s.
wait_for "the last record" sh -c "[ -n \"\$(find $accounting -not -newermt '-20 seconds')\" ]"

mkdir -p "$out"
cp $accounting "$out/accounting"
{
    qacct
    qacct -o
    qacct -slots
    qacct -j | grep -E '^(jobnumber|taskid|jobname|slots|qsub_time|start_time|end_time|failed|exit_status|ru_wallclock) '
} > "$out/qacct.txt"
qconf -ke "$host" >/dev/null || true
qconf -km >/dev/null || true
