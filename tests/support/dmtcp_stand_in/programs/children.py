"""Counts in two children that it forks: ``children.py FILE LAST SECONDS``, into FILE.0 and FILE.1; ends with 2 + 3."""

import sys

import cooperate


def child(state):
    last, seconds = int(sys.argv[2]), float(sys.argv[3])
    while cooperate.goes_on(sys.argv[1], state["next"], last):
        with open("{}.{}".format(sys.argv[1], state["child"]), "a") as file:
            file.write("{}\n".format(state["next"]))
        state["next"] += 1
        cooperate.pause(seconds)
    return 2 + state["child"]


def main():
    state = cooperate.begin({"child": None, "pids": []})
    if state["child"] is not None:
        return child(state)
    if not state["pids"]:
        state["pids"] = [cooperate.fork({"child": number, "next": 0}, child) for number in range(2)]
    return sum(cooperate.wait(pid) for pid in state["pids"])


if __name__ == "__main__":
    sys.exit(main())
