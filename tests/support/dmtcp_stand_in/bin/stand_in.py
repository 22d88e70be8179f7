"""What the commands of the stand-in share: version, faults, options, and how they talk."""

import ctypes
import json
import os
import socket
import sys
import time

FAILED = int(os.environ.get("DMTCP_FAIL_RC") or 99)
DEFAULT_PORT = 7779
HERE = os.path.dirname(os.path.abspath(__file__))


def settings():
    """``(version, faults)``: the environment before what ``install`` wrote."""
    try:
        with open(os.path.join(HERE, "stand_in.json")) as file:
            written = json.load(file)
    except OSError:
        written = {}
    version = os.environ.get("STAND_IN_DMTCP") or written.get("version", "4.2.0")
    fault = os.environ.get("STAND_IN_FAULT", written.get("fault", ""))
    return version, {name for name in fault.split(",") if name}


def number(version):
    """A version as numbers that can be compared."""
    return tuple(int(part) for part in version.split("."))


def version_or_hang(name):
    version, faults = settings()
    if "hang_version" in faults:
        time.sleep(3600)
    print(f"{name} (DMTCP) {version}")
    print("License LGPLv3+: GNU LGPL version 3 or later\n    <http://gnu.org/licenses/lgpl.html>.")
    print("This program comes with ABSOLUTELY NO WARRANTY.")


def name_me(name):
    """The name that ps shows."""
    ctypes.CDLL(None).prctl(15, name[:15].encode(), 0, 0, 0)


def fail(text):
    """End as DMTCP's assertions end a process."""
    sys.stderr.write(f"[stand-in, {os.getpid()}, Error] {text}\n")
    sys.stderr.flush()
    os._exit(FAILED)


class Options:
    """The options that launch and restart have in common."""

    def __init__(self, arguments):
        self.port = os.environ.get("DMTCP_COORD_PORT", "")
        self.port_file = ""
        self.ckptdir = os.environ.get("DMTCP_CHECKPOINT_DIR", "")
        self.new = False
        self.join = False
        rest = list(arguments)
        takes = {"-i": "", "--interval": "", "-t": "", "--tmpdir": "", "-h": "", "--coord-host": ""}
        takes.update({"-p": "port", "--coord-port": "port", "--port-file": "port_file", "-c": "ckptdir"})
        takes.update({"--ckptdir": "ckptdir", "--coord-logfile": "", "--with-plugin": "", "--ckpt-signal": ""})
        while rest and rest[0].startswith("-"):
            word = rest.pop(0)
            if word == "--":
                break
            if word in takes and rest:
                value = rest.pop(0)
                if takes[word]:
                    setattr(self, takes[word], value)
            elif word == "--new-coordinator":
                self.new = True
            elif word in ("-j", "--join-coordinator"):
                self.join = True
            elif word not in ("-q", "--quiet", "--no-gzip", "--gzip", "--any-coordinator", "--no-strict-checking"):
                print("Invalid Argument")
                sys.exit(FAILED)
        self.rest = rest


def begin_coordinator(options):
    """The port of the coordinator for these options, started if need be; written to the port file."""
    if options.join:
        port = int(options.port or DEFAULT_PORT)
    else:
        listening = listen(options)
        port = listening.getsockname()[1]
        os.set_inheritable(listening.fileno(), True)
        if os.fork() == 0:
            if os.fork() != 0:
                os._exit(0)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            script = os.path.join(HERE, "dmtcp_coordinator")
            os.execv(script, [script, "--quiet", "--exit-on-last", "--daemon", "--listen-fd", str(listening.fileno())])  # noqa: S606
        os.wait()
        listening.close()
    write_port(options, port)
    return port


def listen(options):
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # On every address and without asking who calls, as the real one.
        listening.bind(("0.0.0.0", int(options.port or DEFAULT_PORT)))  # noqa: S104
    except OSError as error:
        fail(f"Failed to create socket to connect to coordinator port: {error}")
    listening.listen(128)
    return listening


def write_port(options, port):
    if options.port_file:
        descriptor = os.open(options.port_file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.write(descriptor, str(port).encode())
        os.close(descriptor)


def talk(port, request, timeout=None):
    """Send one request, return one answer; OSError without a coordinator, EOFError if it goes away."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as channel:
        channel.sendall(json.dumps(request).encode() + b"\n")
        with channel.makefile("rb") as lines:
            line = lines.readline()
    if not line:
        raise EOFError
    return json.loads(line.decode())
