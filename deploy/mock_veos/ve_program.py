#!/usr/bin/env python3
"""A program with memory on a mock vector engine: it counts into a file, one line for each number.

    ve_program.py --socket S --ve 0 --size 1G --out counts.txt --count 100

Each number needs the engine's memory, so it waits while that is swapped out; if continued too early, it is killed.
Exit codes: 0 done, 3 no memory on the engine, 4 VEOS has ended.
"""

import argparse
import socket
import sys
import time
from typing import List

from veos import size


def main(arguments: List[str]) -> int:
    """Count; see above."""
    parser = argparse.ArgumentParser(description="Counts on a mock vector engine.")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--ve", type=int, default=0, help="which engine")
    parser.add_argument("--size", type=size, default=size("1G"), help="memory that can be swapped")
    parser.add_argument("--fixed", type=size, default=0, help="memory that cannot")
    parser.add_argument("--out", required=True, help="file for the numbers")
    parser.add_argument("--count", type=int, default=0, help="how far to count; 0: forever")
    parser.add_argument("--interval", type=float, default=0.02, help="seconds between two numbers")
    options = parser.parse_args(arguments)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(options.socket)
    talk = connection.makefile("rwb", buffering=0)
    talk.write(b"register %d %d %d\n" % (options.ve, options.size, options.fixed))
    code = int(talk.readline() or b"-1")
    if code:
        print("VE %d: no memory: error %d" % (options.ve, -code), file=sys.stderr)
        return 3
    number = 0
    with open(options.out, "w", encoding="ascii") as file:
        while not options.count or number < options.count:
            talk.write(b"step\n")
            if not talk.readline():
                print("VEOS has ended", file=sys.stderr)
                return 4
            number += 1
            file.write("%d\n" % number)
            file.flush()
            time.sleep(options.interval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
