"""What all programs of shapes share: steps that are counted into the file ``out``, and the end. Python 3.6.

A program ends when there is a file ``finish``. A fault that it finds itself goes to the file ``fault``, with exit code
90; what it is not permitted, to the file ``refused``, with exit code 91. With OMFS_MARK it keeps its own checkpoints,
and under the stand-in for DMTCP it cooperates: then it begins again at the number that it had reached.
"""

import ctypes
import os
import signal
import sys
import time

FAULTY, REFUSED = 90, 91
LIBC = ctypes.CDLL(None, use_errno=True)


class _Asked:
    is_asked = False


def must(holds, what):
    """End with a fault unless it holds."""
    if not holds:
        with open("fault", "a") as file:
            file.write(what + "\n")
        os._exit(FAULTY)


def must_permit(holds, what):
    """End, with exit code 91, unless the program may do this: the tool told it that it may not."""
    if not holds:
        with open("refused", "w") as file:
            file.write(what + "\n")
        os._exit(REFUSED)


def is_finished():
    return os.path.exists("finish")


def write(file, number):
    """Count a step that is done; the file is opened for appending and kept open."""
    os.write(file, b"%d\n" % number)


def opened(name="out"):
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def steps(pause=0.02):
    """The numbers of the steps; each is counted when its work is done."""
    state, sleep = {"number": 0}, _sleep
    if os.environ.get("STAND_IN_DIRECTORY"):
        import cooperate

        state, sleep = cooperate.begin(state), cooperate.pause
    if os.environ.get("OMFS_MARK"):
        signal.signal(signal.SIGUSR1, _on_asked)
        if os.environ.get("OMFS_RESTARTED"):
            with open("state") as file:
                state["number"] = int(file.read())
    out = opened()
    while not is_finished():
        yield state["number"] + 1
        state["number"] += 1
        write(out, state["number"])
        if _Asked.is_asked:
            _keep(state["number"])
        sleep(pause)


def _sleep(seconds):
    """All of it, whatever signals come (PEP 475 does not cover a checkpoint)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(max(0.0, end - time.monotonic()))


def _on_asked(*_):
    _Asked.is_asked = True


def _keep(number):
    with open("state.new", "w") as file:
        file.write(str(number))
        file.flush()
        os.fsync(file.fileno())
    os.rename("state.new", "state")
    with open(os.environ["OMFS_MARK"], "w"):
        pass
    os._exit(0)


def main(table):
    """Run the shape that is named."""
    sys.exit(table[sys.argv[1]]())
