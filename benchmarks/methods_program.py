"""The program that is preempted: holds memory that does not compress, and reports when it is up. Any Python 3.6.

``methods_program.py BYTES UP STATE``: writes its pid to the file UP once all its memory was touched. After SIGUSR1 it
writes its memory to the file STATE, on disk, makes the file OMFS_MARK and ends; with OMFS_RESTARTED it reads it back.
"""

import os
import signal
import sys
import time

_BLOCK = (16 << 20) + 4099  # odd, so that no two pages are equal


def main() -> None:
    size, up, kept = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    pause = time.sleep
    if os.environ.get("STAND_IN_DIRECTORY"):  # its images hold no memory: their size is given to it
        import cooperate

        cooperate.begin({})
        pause, memory = cooperate.pause, bytearray(1)
    else:
        memory = read(kept, size) if os.environ.get("OMFS_RESTARTED") else filled(size)
    with open(up + ".new", "w") as said:
        said.write(str(os.getpid()))
    os.rename(up + ".new", up)
    while not asked:
        pause(0.01)
    with open(kept, "wb", buffering=0) as file:
        view = memoryview(memory)
        at = 0
        while at < size:
            at += file.write(view[at : at + _BLOCK])
        os.fsync(file.fileno())
    open(os.environ["OMFS_MARK"], "w").close()


def filled(size: int) -> bytearray:
    memory, block = bytearray(size), os.urandom(_BLOCK)
    for at in range(0, size, _BLOCK):
        memory[at : at + _BLOCK] = block[: size - at]
    return memory


def read(path: str, size: int) -> bytearray:
    memory = bytearray(size)
    with open(path, "rb", buffering=0) as file:
        view = memoryview(memory)
        at = 0
        while at < size:
            at += file.readinto(view[at : at + _BLOCK])
    return memory


if __name__ == "__main__":
    main()
