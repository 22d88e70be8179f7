#!/bin/bash
#SBATCH --comment=omfs:method=self_requeue
#SBATCH --open-mode=append

report() {
    scontrol update jobid="$SLURM_JOB_ID" \
        comment="omfs:method=self_requeue omfs:run=${SLURM_RESTART_COUNT:-0}:$1:method=self_requeue"
}

preempt() {
    trap '' USR2                      # the signal may be sent again until the job is gone
    report stopping
    kill -USR2 "$program"             # the program writes its state and ends with 75
    wait "$program"
    code=$?
    [ $code = 75 ] || exit $code      # it was done, or failed: then the job ends
    scontrol requeue "$SLURM_JOB_ID"  # Slurm ends this script, and the job is pending again
    sleep 60                          # an end of its own would make the job COMPLETED
    exit 1
}

trap '' USR2                          # a program that has no handler yet must not die of it
./simulate --state state.dat &        # continues from state.dat if there is one
program=$!
trap preempt USR2
report ready
wait "$program"
