"""Counts into a file that it holds open for appending: ``append.py FILE LAST SECONDS``."""

import sys

import cooperate


def main():
    state = cooperate.begin({"next": 0})
    last, seconds = int(sys.argv[2]), float(sys.argv[3])
    with open(sys.argv[1], "a", buffering=1) as file:
        while cooperate.goes_on(sys.argv[1], state["next"], last):
            file.write("{}\n".format(state["next"]))
            state["next"] += 1
            cooperate.pause(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
