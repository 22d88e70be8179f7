"""Counts: ``count.py FILE LAST SECONDS [CODE]``. A line for each number and the directory it was in; ends with CODE.

SIGTERM: ends with 7 at once.
"""

import os
import signal
import sys

import cooperate


def main():
    path, last, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    state = cooperate.begin({"next": 0})
    while cooperate.goes_on(path, state["next"], last):
        with open(path, "a") as file:
            file.write("{} {}\n".format(state["next"], os.getcwd()))
        state["next"] += 1
        cooperate.pause(seconds)
    return int(sys.argv[4]) if len(sys.argv) > 4 else 0


if __name__ == "__main__":
    sys.exit(main())
