"""Counting programs for jobs that are stopped: each writes 1, 2, 3... a line each, into a file that it keeps open.

Kinds: ``single``; ``forked`` (two children count); ``openmp`` (two threads); ``ranks`` (two). Worker W counts into
``count-JOB-W`` in the job's directory. All end, with exit code 7, when there is a file ``finish``.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support import dmtcp_stand_in
from tests.support.waiting import LIMIT

CODE = 7
PYTHON = "/usr/bin/python3"  # one that every user may run

# For methods that need nothing of the program, and for the program that keeps its own checkpoints: asked with USR1 it
# writes how far each worker came, makes $OMFS_MARK and ends; not before a file ``not-yet`` is gone. A rank of several
# (SLURM_PROCID) is a worker; the first one makes the mark, once all have written.
WORK_C = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static pid_t children[2];
static const char *job;
static int run;

static int given(const char *name, int otherwise) {
    return getenv(name) ? atoi(getenv(name)) : otherwise;
}

static void on_usr1(int number) {
    asked = 1;
    for (int child = 0; child < 2; child++)
        if (children[child]) kill(children[child], number);
}

static void path(char *to, const char *what, int worker, int of) {
    if (of < 0) snprintf(to, 64, "%s-%s-%d", what, job, worker);
    else snprintf(to, 64, "%s-%s-%d.%d", what, job, worker, of);
}

static int begin(int worker) {
    char name[64];
    int number = 0;
    for (int of = run - 1; of >= 0; of--) {
        path(name, "state", worker, of);
        FILE *state = fopen(name, "r");
        if (!state) continue;
        if (fscanf(state, "%d", &number) != 1) abort();
        fclose(state);
        break;
    }
    return getenv("OMFS_RESTARTED") ? number : 0;
}

static void keep(int worker, int number) {
    char name[64], partial[80];
    path(name, "state", worker, run);
    snprintf(partial, sizeof(partial), "%s.new", name);
    FILE *state = fopen(partial, "w");
    fprintf(state, "%d\n", number);
    if (fclose(state) || rename(partial, name)) abort();
}

static void step(FILE *count, int *number) {
    fprintf(count, "%d\n", ++*number);
    fflush(count);
}

static FILE *opened(int worker) {
    char name[64];
    path(name, "count", worker, -1);
    FILE *count = fopen(name, "a");
    if (!count) abort();
    return count;
}

static int finished(void) { return access("finish", F_OK) == 0; }

/* Exit code 7 when it is finished, 0 when it was asked and has kept its state. */
static int alone(int worker) {
    FILE *count = opened(worker);
    int number = begin(worker);
    while (!finished()) {
        step(count, &number);
        if (asked && access("not-yet", F_OK)) { keep(worker, number); return 0; }
        usleep(20000);
    }
    return 7;
}

static int forked(void) {
    for (int child = 0; child < 2; child++)
        if ((children[child] = fork()) == 0) { children[0] = 0; _exit(alone(child)); }
    int code = 0, status;
    for (int child = 0; child < 2; child++) {
        while (waitpid(children[child], &status, 0) < 0) ;
        if (WEXITSTATUS(status) > code) code = WEXITSTATUS(status);
    }
    return code;
}

static int threads(void) {
    FILE *counts[2] = { opened(0), opened(1) };
    int numbers[2] = { begin(0), begin(1) };
    while (!finished()) {
        #pragma omp parallel num_threads(2)
        step(counts[omp_get_thread_num()], &numbers[omp_get_thread_num()]);
        if (asked) { keep(0, numbers[0]); keep(1, numbers[1]); return 0; }
        usleep(20000);
    }
    return 7;
}

int main(int count, char **arguments) {
    const char *kind = count > 1 ? arguments[1] : "single", *mark = getenv("OMFS_MARK");
    int rank = given("SLURM_PROCID", 0), ranks = given("SLURM_STEP_NUM_TASKS", 1), code;
    job = getenv("SLURM_JOB_ID");
    run = given("OMFS_RESTARTS", 0);
    if (mark) signal(SIGUSR1, on_usr1);
    if (!strcmp(kind, "openmp")) code = threads();
    else if (!strcmp(kind, "forked")) code = forked();
    else code = alone(!strcmp(kind, "rank") ? rank : 0);
    if (code == 0 && !strcmp(kind, "rank") && rank == 0) {
        char name[64];
        for (int other = 1; other < ranks; other++)
            for (path(name, "state", other, run); access(name, F_OK); usleep(5000)) ;
    }
    if (code == 0 && (strcmp(kind, "rank") || rank == 0)) close(open(mark, O_WRONLY | O_CREAT, 0600));
    return code;
}
"""

# For the stand-in for DMTCP, which only checkpoints programs that cooperate.
WORK_PY = """
import os, sys
import cooperate

def count(state):
    name = "count-{}-{}".format(sys.argv[2], state["worker"])
    with open(name, "a", buffering=1) as file:
        while not os.path.exists("finish"):
            state["number"] += 1
            file.write("{}\\n".format(state["number"]))
            cooperate.pause(0.03)
    return 7

def main():
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    state = cooperate.begin({"worker": rank, "number": 0, "pids": []})
    if sys.argv[1] != "forked" or "pids" not in state:
        return count(state)
    if not state["pids"]:
        for worker in range(2):
            state["pids"].append(cooperate.fork({"worker": worker, "number": 0}, count))
    return max(cooperate.wait(pid) for pid in state["pids"])

sys.exit(main())
"""


class Programs:
    """Made in a directory that every user may enter."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        (directory / "work.c").write_text(WORK_C)
        arguments = ["gcc", "-O1", "-fopenmp", "-o", directory / "work", directory / "work.c"]
        subprocess.run(arguments, check=True, timeout=LIMIT)
        self.dmtcp()

    def dmtcp(self, name: str = "") -> Path:
        """The directory of the commands of one copy of the stand-in; one called like a fault has it from the start."""
        place = self.directory / ("dmtcp" + name)
        if not place.exists():
            fault = name if name in dmtcp_stand_in.FAULTS else ""
            (dmtcp_stand_in.install(place, fault=fault).parent / "programs" / "work.py").write_text(WORK_PY)
        return place / "bin"

    def break_dmtcp(self, name: str, fault: str) -> None:
        """From now on the commands of that copy have this fault."""
        path = self.dmtcp(name) / "stand_in.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps({**json.loads(path.read_text()), "fault": fault}))
        new.chmod(0o644)
        new.replace(path)  # a coordinator may be reading it

    def command(self, method: str, kind: str) -> str:
        """What is written behind ``omfs-run``; ``ranks``: two of them."""
        if method == "dmtcp":
            programs = self.directory / "dmtcp" / "programs"
            work = f"{PYTHON} {programs}/work.py"
            arguments = f"{'single' if kind == 'ranks' else kind} $SLURM_JOB_ID"  # ranks are told nothing of Slurm
            return f"{programs}/mpirun -np 2 {work} {arguments}" if kind == "ranks" else f"{work} {arguments}"
        work = str(self.directory / "work")
        return f"srun --quiet -n2 --overcommit {work} rank" if kind == "ranks" else f"{work} {kind}"


def counted(directory: Path, job: int) -> dict[str, list[int]]:
    """What each worker of a job has written; lines that are not whole yet are left out."""
    found = {}
    for path in sorted(directory.glob(f"count-{job}-*")):
        found[path.name] = [int(line) for line in path.read_text().split("\n")[:-1]]
    return found


def is_gapless(numbers: list[int]) -> bool:
    """No gap and no repeat."""
    return numbers == list(range(1, len(numbers) + 1))
