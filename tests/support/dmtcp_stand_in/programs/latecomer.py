"""Two processes count: ``latecomer.py FILE LAST SECONDS``. DMTCP does not know the second before there is a FILE.join.

It counts into FILE.1 only then; up to release 4.2, one that is unknown when a checkpoint begins is lost.
"""

import os
import sys
import time

import cooperate


def child(state):
    while cooperate.goes_on(sys.argv[1], state["next"], int(sys.argv[2])):
        with open(sys.argv[1] + ".1", "a") as file:
            file.write("{}\n".format(state["next"]))
        state["next"] += 1
        cooperate.pause(float(sys.argv[3]))
    return 3


def is_awaited():
    while not os.path.exists(sys.argv[1] + ".join"):
        time.sleep(0.01)


def main():
    state = cooperate.begin({"pid": 0, "next": 0})
    if "pid" not in state:
        return child(state)
    if not state["pid"]:
        state["pid"] = cooperate.fork({"next": 0}, child, before=is_awaited)
        open(sys.argv[1], "w").close()
    return cooperate.wait(state["pid"])


if __name__ == "__main__":
    sys.exit(main())
