"""How a program lets the stand-in checkpoint it; under real DMTCP, or under nothing, all of this does nothing.

A program keeps all that matters in one dictionary, gets it from ``begin`` (as it was at the checkpoint, when it is
restarted) and sleeps with ``pause``, where a checkpoint may happen. Python 3.6.
"""

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time

_RESUMED = {"do": "resume"}
_DESCRIPTOR = 821  # as DMTCP's


class _Me:
    channel = None
    buffer = b""
    virtual = 0
    parent = 0
    upid = ""
    prog = ""
    launched_in = ""
    is_back = True
    children = {}  # virtual pid -> real pid  # noqa: RUF012
    plug_ins = []  # noqa: RUF012
    ended = {}  # virtual pid -> exit code, kept by the plug-in  # noqa: RUF012
    state = {}  # noqa: RUF012


def begin(state):
    """The program's state: ``state`` when it is new, what was saved when it is restarted."""
    _Me.children = {int(key): value for key, value in json.loads(os.environ.get("STAND_IN_CHILDREN", "{}")).items()}
    _Me.plug_ins = [_loaded(name) for name in os.environ.get("DMTCP_PLUGIN", "").split(":") if name]
    if _Me.plug_ins and _inherits_children():
        _Me.plug_ins.append(_loaded(os.environ["DMTCP_PLUGIN"].split(":")[0], as_sign=True))
    path = os.environ.pop("STAND_IN_IMAGE", "")
    os.environ.pop("STAND_IN_CHILDREN", None)
    expected = int(os.environ.pop("STAND_IN_EXPECTED", "0"))
    _Me.virtual = int(os.environ.pop("STAND_IN_VIRTUAL", "0")) or os.getpid()
    _Me.parent = int(os.environ.get("STAND_IN_PARENT", "0"))
    _Me.prog = os.path.basename(sys.argv[0]).replace(".py", "")
    _Me.upid = f"98ff-{_Me.virtual}-{int(time.monotonic() * 1e9) & 0xFFFFFFFF:x}"
    _Me.launched_in = os.getcwd()
    if path:
        with open(path, "rb") as file:
            image = json.loads(file.readline().decode())
        if not (image["fixed"] and _has_fixed_addresses()):
            os.kill(os.getpid(), signal.SIGSEGV)  # as one in three programs whose heap grows
        if not os.path.exists(image["copy"]):
            _die("Unable to find checkpointed copy of file: {}".format(image["copy"]))
        if image["lost"]:
            sys.stderr.write("[stand-in] gone after the restart: {}\n".format(", ".join(image["lost"])))
            _flush()
            os._exit(1)  # as a program that then finds it missing
        state = image["state"]
        _Me.ended = {int(key): value for key, value in image["ended"].items()}
        _Me.virtual, _Me.parent, _Me.upid, _Me.prog = (image[key] for key in ("virtual", "parent", "upid", "prog"))
        _Me.launched_in = image["launched_in"]
        ctypes.CDLL(None).prctl(15, f"DMTCP:{_Me.prog}"[:15].encode(), 0, 0, 0)
    _Me.state = state
    _Me.is_back = not path
    _connect("RESTARTING" if path else "RUNNING", expected)
    if path and _Me.channel is not None:
        _read(None)  # until all are back
    return state


def goes_on(path, number, last):
    """Whether to count on from ``number``: below ``last``, or, if that is 0, until there is a file PATH.finish."""
    return number < last if last else not os.path.exists(path + ".finish")


def pause(seconds):
    """Sleep; a checkpoint may happen meanwhile, and then the program continues here."""
    if _Me.channel is None:
        time.sleep(seconds)
    else:
        _read(seconds)


def fork(state, function, before=None):
    """A child that runs ``function(state)`` and ends with what it returns; its pid, for ``wait``.

    The coordinator learns of it when ``before()`` returns.
    """
    pid = os.fork()
    if pid:
        _Me.children[pid] = pid
        return pid
    parent, _Me.parent, _Me.virtual = _Me.virtual, _Me.virtual, os.getpid()
    os.environ["STAND_IN_PARENT"] = str(parent)
    _Me.children, _Me.ended, _Me.state = {}, {}, state
    _Me.upid = f"98ff-{_Me.virtual}-{int(time.monotonic() * 1e9) & 0xFFFFFFFF:x}"
    if _Me.channel is not None:
        _Me.channel.close()
        _Me.channel, _Me.buffer = None, b""
    if before is not None:
        before()
    _connect("RUNNING", 0)
    code = 98
    try:
        code = function(state)
    finally:
        os._exit(code)


def spawn(arguments, environment):
    """Another program as a child; its pid, for ``wait``."""
    pid = subprocess.Popen(arguments, env=dict(environment, STAND_IN_PARENT=str(_Me.virtual))).pid
    _Me.children[pid] = pid
    return pid


def wait(pid):
    """The exit code of a child of ours, also of one that came back under another pid."""
    real = _Me.children.get(pid, pid)
    while pid not in _Me.ended:
        ended, status = os.waitpid(real, os.WNOHANG)
        if ended:
            return _code(status)
        pause(0.02)
    return _Me.ended.pop(pid)


def _code(status):
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _loaded(name, as_sign=False):
    """A library as /proc shows it of a process that has loaded it; without access it is the plug-in's sign."""
    with open(name, "rb") as file:
        if as_sign:
            return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, 0)
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)


def _inherits_children():
    found = ctypes.c_int()
    return ctypes.CDLL(None).prctl(37, ctypes.byref(found), 0, 0, 0) == 0 and bool(found.value)


def _lost():
    """What is not there any more after a restart by DMTCP, also where it says nothing about it."""
    lost = ["the parent of what descendants leave"] if _inherits_children() else []
    seen = set()
    for name in set(os.listdir("/proc/self/fd")) - {"0", "1", "2"}:
        try:
            target, info = os.readlink("/proc/self/fd/" + name), os.stat("/proc/self/fd/" + name)
            with open("/proc/self/fdinfo/" + name) as file:
                text = file.read()
        except OSError:
            continue  # that of the directory
        flags = int(text.split("flags:")[1].split()[0], 8)
        if any(part in target for part in ("memfd:", "timerfd", "inotify", "pidfd", "ptmx")) or flags & 0o10000000:
            lost.append(target)
        if stat.S_ISREG(info.st_mode) and flags & 0o20000000 and info.st_nlink == 0:
            lost.append("O_TMPFILE")
        if "\nlock:" in text:
            lost.append("a lock")
        kind = (target, flags & ~os.O_CLOEXEC, text.split()[1])
        if kind in seen and not _Me.plug_ins:
            lost.append("a duplicate of " + target)
        seen.add(kind)
    return lost


def _keep_ended():
    """What the plug-in does at a checkpoint; without it, what has ended is lost."""
    for pid, real in _Me.children.items() if _Me.plug_ins else ():
        with contextlib.suppress(ChildProcessError):
            ended, status = os.waitpid(real, os.WNOHANG)
            if ended:
                _Me.ended[pid] = _code(status)


def _connect(state, expected):
    port = os.environ.get("STAND_IN_PORT")
    if not port:
        return
    with socket.create_connection(("127.0.0.1", int(port))) as channel:
        os.dup2(channel.fileno(), _DESCRIPTOR, inheritable=False)
    _Me.channel = socket.socket(fileno=_DESCRIPTOR)
    hello = {"hello": 1, "pid": os.getpid(), "virtual": _Me.virtual, "prog": _Me.prog, "upid": _Me.upid}
    hello.update(state="WorkerState::" + state, expected=expected)
    _Me.channel.sendall(json.dumps(hello).encode() + b"\n")


def _read(seconds):
    """Do what the coordinator says for so many seconds; None: until it requests to resume."""
    end = None if seconds is None else time.monotonic() + seconds
    held = seconds is None
    while True:
        left = None if held or end is None else max(0.0, end - time.monotonic())
        ready, _, _ = select.select([_Me.channel], [], [], left)
        if not ready:
            return
        data = _Me.channel.recv(65536)
        if not data:
            _die("the coordinator is gone")
        *lines, _Me.buffer = (_Me.buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line.decode())
            held = _do(message, held)
        if seconds is None and not held:
            return


def _do(message, held):
    if message["do"] == "kill":
        _flush()
        os._exit(0)
    if message["do"] == "suspend" and (
        "finishes" in message["faults"] or ("first_finishes" in message["faults"] and not _Me.parent)
    ):
        _flush()
        os._exit(int(os.environ.get("STAND_IN_FINISHES_WITH", "0")))
    if message["do"] == "suspend":
        _tell({"state": "WorkerState::SUSPENDED"})
        return True
    if message["do"] == "write":
        if "hang_checkpoint" not in message["faults"]:
            _write(message["faults"])
        return True
    if message == _RESUMED:
        _stay_held()
        _show_restarted()
        _tell({"state": "WorkerState::RUNNING"})
        return False
    return held


def _stay_held():
    """What the plug-in does for a rehearsal, at the end of a checkpoint and of a restart."""
    directory = os.environ.get("DMTCP_TMPDIR", "")
    hold = os.path.join(directory, "omfs-hold")
    if _Me.plug_ins and _is_held(hold):
        open(os.path.join(directory, "omfs-held.{}".format(os.getpid())), "w").close()
        while _is_held(hold):
            time.sleep(0.005)


def _show_restarted():
    """The plug-in's sign that this process is back, so that its end is its own."""
    directory = os.environ.get("DMTCP_TMPDIR", "")
    if _Me.plug_ins and not _Me.is_back and directory:
        open(os.path.join(directory, "omfs-restarted-{}".format(os.getpid())), "w").close()
    _Me.is_back = True


def _is_held(hold):
    try:
        with open(hold) as file:
            os.kill(int(file.read()), 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


def _write(faults):
    directory = os.environ["STAND_IN_DIRECTORY"]
    _keep_ended()
    try:
        if not os.path.isdir(directory):
            os.mkdir(directory, 0o700)
        if not os.access(directory, os.X_OK | os.W_OK):
            _die(f"ERROR: Missing execute- or write-access to checkpoint dir {directory}")
        path = os.path.join(directory, f"ckpt_{_Me.prog}_{_Me.upid}.dmtcp")
        _image(path + ".temp", faults)
        os.makedirs(os.path.dirname(_copy(path)), mode=0o700, exist_ok=True)
        with open(_copy(path), "w") as file:
            file.write(_Me.upid)
        if "temp_left" not in faults or _Me.parent:
            os.rename(path + ".temp", path)
        if "image_missing" in faults and not _Me.parent:
            os.unlink(path)
    except OSError as error:
        _die(f"(errno = {error.errno}) {error}")
    _flush()
    _tell({"state": "WorkerState::CHECKPOINTED", "image": path})


def _copy(path):
    """A file that DMTCP copies, such as a mapping in /dev/shm: sought under this very path at a restart."""
    return os.path.join(path[: -len(".dmtcp")] + "_files", "shm_1")


def _has_fixed_addresses():
    return bool(ctypes.CDLL(None).personality(ctypes.c_ulong(0xFFFFFFFF)) & 0x0040000)


def _image(path, faults):
    size = int(float(os.environ.get("STAND_IN_IMAGE_MB", "2")) * (1 << 20))
    header = {"state": _Me.state, "virtual": _Me.virtual, "parent": _Me.parent, "upid": _Me.upid, "prog": _Me.prog}
    header.update(ended=_Me.ended, lost=_lost())
    header.update(launched_in=_Me.launched_in, directory=os.getcwd(), environment=dict(os.environ), size=size)
    header.update(copy=_copy(path[: -len(".temp")]), fixed=_has_fixed_addresses())
    header.update(arguments=[sys.executable, *sys.argv], version=os.environ.get("STAND_IN_DMTCP", "4.2.0"))
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file.write(json.dumps(header).encode() + b"\n")
        if "slow" in faults:
            time.sleep(1.0)
        while file.tell() < size:
            if "disk_full" in faults and file.tell() > size // 2:
                _die(f"(strerror = No space left on device) {path}")
            file.write(b"\0" * min(1 << 16, size - file.tell()))


def _tell(message):
    try:
        _Me.channel.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        _die("the coordinator is gone")


def _flush():
    sys.stdout.flush()
    sys.stderr.flush()


def _die(text):
    sys.stderr.write(f"[stand-in, {os.getpid()}, Error] {text}\n")
    _flush()
    os._exit(int(os.environ.get("DMTCP_FAIL_RC") or 99))
