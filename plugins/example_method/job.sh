#!/bin/bash
#SBATCH --comment=omfs:method=self_requeue
#SBATCH --open-mode=append

say() {
    scontrol update jobid="$SLURM_JOB_ID" \
        comment="omfs:method=self_requeue omfs:run=${SLURM_RESTART_COUNT:-0}:$1:method=self_requeue"
}

stop() {
    trap '' USR2                      # it may be asked again until it has gone: once is enough
    say stopping
    kill -USR2 "$program"             # the program writes its state and ends with 75
    wait "$program"
    code=$?
    [ $code = 75 ] || exit $code      # it was done, or could not: then the job ends as it is
    scontrol requeue "$SLURM_JOB_ID"  # Slurm ends this script, and the job waits again
    sleep 60                          # an end of its own would make the job COMPLETED
    exit 1
}

trap '' USR2                          # a program that has no handler yet must not die of it
./simulate --state state.dat &        # goes on from state.dat if that is there
program=$!
trap stop USR2
say ready
wait "$program"
