"""Drives the CRIU driver as an ordinary user: `criu_run.py PACKAGES DIRECTORY PROGRAM...`, JSON commands on stdin.

One command a line: {"do": "version" | "start" | "checkpoint" | "restart" | "wait" | "signal" | "kill", ...}; one JSON
reply each. The program's output goes to DIRECTORY/out. Runs with the system's Python, which unlike the tests' own
every user may read.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, sys.argv[1])

from omfs_daemon.omfs_run.drivers.criu import criu_driver as criu
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Ended, Image


def main() -> None:
    directory, command = sys.argv[2], sys.argv[3:]
    orders, answers = os.dup(0), os.dup(1)
    out = os.open(directory + "/out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for wanted, number in ((null, 0), (out, 1), (out, 2)):
        os.dup2(wanted, number)
    os.close(out)
    os.close(null)
    driver = criu.Criu()
    program = None
    scratch = tempfile.mkdtemp(prefix="scratch-", dir=directory)
    with os.fdopen(orders) as lines, os.fdopen(answers, "w") as replies:
        for line in lines:
            order = json.loads(line)
            do = order["do"]
            answer = {}
            try:
                if do == "version":
                    answer["version"] = driver.version()
                elif do == "start":
                    program = driver.start(command, scratch)
                elif do == "restart":
                    image = Image(*order["image"])
                    program = driver.restart(order["directory"], image, scratch, order["timeout"])
                elif program is None:
                    raise SystemExit("no program")
                elif do == "checkpoint":
                    answer["image"] = list(program.checkpoint(order["directory"], order["timeout"]))
                elif do == "wait":
                    answer["code"] = program.wait(order["timeout"])
                elif do == "signal":
                    program.signal(order["number"])
                elif do == "kill":
                    program.kill()
                answer["pid"] = program.pid if program else 0
            except Ended as error:
                answer.update(failed="ended", code=error.code)
            except CannotStop as error:
                answer.update(failed=error.why, message=str(error), alive=error.alive)
            except CannotStart as error:
                answer.update(failed=error.why, message=str(error))
            replies.write(json.dumps(answer) + "\n")
            replies.flush()


main()
