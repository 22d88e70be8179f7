"""A rank that counts: ``rank.py FILE LAST SECONDS``, into FILE.RANK; its environment into FILE.RANK.environment."""

import os
import sys

import cooperate


def main():
    path = "{}.{}".format(sys.argv[1], os.environ["OMPI_COMM_WORLD_RANK"])
    state = cooperate.begin({"next": 0})
    if state["next"] == 0:
        with open(path + ".environment", "w") as file:
            file.write("\n".join(sorted("{}={}".format(*item) for item in os.environ.items())))
    while cooperate.goes_on(sys.argv[1], state["next"], int(sys.argv[2])):
        with open(path, "a") as file:
            file.write("{}\n".format(state["next"]))
        state["next"] += 1
        cooperate.pause(float(sys.argv[3]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
