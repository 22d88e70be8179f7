"""A child ends with 3 and is waited for only when there is FILE.finish: ``unwaited.py FILE``; ends with its code.

DMTCP drops a child that has ended: after a restart its exit status is lost.
"""

import os
import sys

import cooperate


def main():
    state = cooperate.begin({"pid": 0})
    if not state["pid"]:
        state["pid"] = cooperate.fork({}, lambda state: 3)
        os.waitid(os.P_PID, state["pid"], os.WEXITED | os.WNOWAIT)
        open(sys.argv[1], "w").close()
    while not os.path.exists(sys.argv[1] + ".finish"):
        cooperate.pause(0.02)
    try:
        return cooperate.wait(state["pid"])
    except ChildProcessError:
        return 127


if __name__ == "__main__":
    sys.exit(main())
