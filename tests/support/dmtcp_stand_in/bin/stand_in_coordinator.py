"""The coordinator: one for each computation, ends with the last process."""

import contextlib
import json
import os
import selectors
import signal
import socket
import stat
import sys
import time

import stand_in

RUNNING, SUSPENDED, CHECKPOINTED = "WorkerState::RUNNING", "WorkerState::SUSPENDED", "WorkerState::CHECKPOINTED"
HOST = socket.gethostname()
KILLING = "Killing all connected peers..."
STARTING = "starting checkpoint; incrementing generation; suspending all nodes"


class Peer:
    def __init__(self, channel, hello):
        self.channel = channel
        self.hello = hello
        self.state = hello["state"]


class Coordinator:
    def __init__(self, listening, exit_on_last, quiet):
        self.exit_on_last = exit_on_last
        self.quiet = quiet
        self.version, self.faults = stand_in.settings()
        self.number = stand_in.number(self.version)
        self.directory = os.environ.get("DMTCP_CHECKPOINT_DIR") or os.getcwd()
        self.listening = listening
        self.selector = selectors.DefaultSelector()
        self.selector.register(listening, selectors.EVENT_READ)
        self.buffers = {}
        self.peers = []
        self.had_peers = False
        self.expected = 0  # processes that a restart must bring
        self.under_way = 0  # processes in the checkpoint that is being taken
        self.writing = False
        self.images = []
        self.kill_after = False
        self.waiting = None  # who waits for the end of a blocking checkpoint
        self.refusals = 0
        self.script_due = None
        self.computation = f"98ff-40000-{int(time.monotonic() * 1e9) & 0xFFFFFFFFFFFF:x}"

    def run(self):
        while True:
            timeout = 0.5
            if self.script_due is not None:
                timeout = max(0.0, self.script_due - time.monotonic())
                if timeout == 0.0:
                    self.write_script()
            if "waits" in self.faults:
                self.advance()
            if self.exit_on_last and self.had_peers and not self.peers and self.script_due is None:
                return 0
            for key, _ in self.selector.select(timeout):
                if key.fileobj is self.listening:
                    try:
                        channel, _ = self.listening.accept()
                    except OSError:  # as the real one: it waits for the next
                        continue
                    self.buffers[channel] = b""
                    self.selector.register(channel, selectors.EVENT_READ)
                else:
                    self.read(key.fileobj)

    def read(self, channel):
        try:
            data = channel.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.drop(channel)
            return
        *lines, self.buffers[channel] = (self.buffers[channel] + data).split(b"\n")
        for line in lines:
            message = json.loads(line.decode())
            peer = next((peer for peer in self.peers if peer.channel is channel), None)
            if "hello" in message:
                self.note("worker connected", "Worker connected", f"progname={message['prog']}")
                self.peers.append(Peer(channel, message))
                self.had_peers = True
                self.expected = max(self.expected, message.get("expected", 0))
                self.release_restart()
            elif "command" in message:
                answer = self.command(message["command"], channel)
                if answer is not None:
                    self.send(channel, answer)
            elif peer is not None:
                peer.state = message["state"]
                if "image" in message:
                    self.images.append(message["image"])
                self.advance()

    def note(self, older, newer, more=""):
        """Log to stderr, unless a launch has started it, which makes it quiet."""
        if self.quiet or "silent" in self.faults:
            return
        if self.number >= (5,):
            text = f"NOTE at dmtcp_coordinator.cpp:1: <none>: {newer}: {more}\n"
        else:
            text = f"[{os.getpid()}, Note] at dmtcp_coordinator.cpp:1 in x; REASON='{older}; ({more});\n"
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), text.encode())

    def drop(self, channel):
        self.selector.unregister(channel)
        del self.buffers[channel]
        channel.close()
        self.peers = [peer for peer in self.peers if peer.channel is not channel]
        if self.peers and self.under_way:
            self.advance()

    def send(self, channel, message):
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps(message).encode() + b"\n")

    def everyone(self, message):
        for peer in self.peers:
            self.send(peer.channel, message)

    def release_restart(self):
        if (
            self.expected
            and len(self.peers) == self.expected
            and all("RESTARTING" in peer.state for peer in self.peers)
        ):
            self.everyone({"do": "resume"})

    def running(self):
        return bool(self.peers) and all(peer.state == RUNNING for peer in self.peers)

    # --- commands

    def command(self, command, channel):
        if command == "status":
            return {"peers": len(self.peers), "running": self.running()}
        if command == "list":
            lines = ["Client List:", "#, PROG[virtPID:realPID]@HOST, DMTCP-UNIQUEPID, STATE, BARRIER"]
            for index, peer in enumerate(self.peers, 1):
                hello = peer.hello
                line = "{}, {}[{}:{}]@{}, {}, {}, "
                lines.append(
                    line.format(index, hello["prog"], hello["virtual"], hello["pid"], HOST, hello["upid"], peer.state)
                )
            return {"list": "\n".join(lines) + "\n\n"}
        if command in ("kill", "quit"):
            text = "killing all connected peers and quitting ..." if command == "quit" else KILLING
            self.note(text, text)
            self.everyone({"do": "kill"})
            if command == "quit":
                self.send(channel, {})
                os._exit(0)
            return {}
        if command == "interval":
            return {}
        # A refused one may leave this armed, as in the real coordinator.
        self.kill_after = self.kill_after or command == "kcheckpoint"
        if "coordinator_dies" in self.faults:
            os.kill(os.getpid(), signal.SIGKILL)
        if "killed" in self.faults:
            self.note(KILLING, KILLING)
            self.everyone({"do": "kill"})
            return {}
        if "refuse" in self.faults or ("refuse_once" in self.faults and self.refusals == 0):
            self.refusals += 1
            return {"error": "not running"}
        if not self.running() or self.under_way:
            if command == "bcheckpoint" and self.waiting is not None:
                self.waiting = "nobody"  # the first one is forgotten and hangs
            return {"error": "not running"}
        if "late" in self.faults:
            time.sleep(4.0)
        self.note(STARTING, STARTING)
        self.under_way = len(self.peers)
        self.images = []
        self.writing = False
        self.everyone({"do": "suspend", "faults": sorted(self.faults)})
        if command == "bcheckpoint" and not (3, 2) <= self.number < (5,):
            self.waiting = channel
            return None
        if command == "kcheckpoint" and self.number < (3, 2):
            self.waiting = channel
            return None
        return {}

    def advance(self):
        stopped = bool(self.peers) and all(peer.state == SUSPENDED for peer in self.peers)
        held = "waits" in self.faults and "waits" in stand_in.settings()[1]
        if self.under_way and not self.writing and stopped and not held:
            self.under_way = len(self.peers)
            self.writing = True
            self.everyone({"do": "write", "faults": sorted(self.faults)})
        if self.under_way and len(self.images) == self.under_way:
            self.under_way = 0
            self.script_due = time.monotonic() + (2.0 if "late_script" in self.faults else 0.1)
            if self.kill_after:  # not before all have written: a parent would take a killed child for an ended one
                self.everyone({"do": "kill"})
            else:
                self.everyone({"do": "resume"})
            self.kill_after = False

    def write_script(self):
        self.script_due = None
        if "no_script" not in self.faults:
            self._write()
            text = "Checkpoint complete. Wrote restart script"
            self.note(text, text)
        if self.waiting not in (None, "nobody"):
            self.send(self.waiting, {})
        self.waiting = None

    def _write(self):
        path = os.path.join(self.directory, f"dmtcp_restart_script_{self.computation}.sh")
        with open(path, "w") as file:
            file.write("#!/bin/bash\n\n# Number of hosts in the computation = 1\n")
            file.write(f"# Number of processes in the computation = {len(self.images)}\n\n")
            file.write('given_ckpt_files="{}"\n\n'.format("".join(" " + image for image in self.images)))
            file.write("ckpt_files=$given_ckpt_files\nexec dmtcp_restart $ckpt_files\n")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        link = os.path.join(self.directory, "dmtcp_restart_script.sh")
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(os.path.basename(path), link)


def main(arguments):
    if arguments == ["--version"]:
        stand_in.version_or_hang("dmtcp_coordinator")
        return 0
    if "--listen-fd" in arguments:
        listening = socket.socket(fileno=int(arguments[arguments.index("--listen-fd") + 1]))
    else:
        if "no_coordinator" in stand_in.settings()[1]:
            stand_in.fail("Failed to create listen socket.")
        options = stand_in.Options(arguments)
        listening = stand_in.listen(options)
        stand_in.write_port(options, listening.getsockname()[1])
    stand_in.name_me("dmtcp_coordin:0")
    if "--daemon" in arguments:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, signal.NSIG)) - {signal.SIGALRM})
    return Coordinator(listening, "--exit-on-last" in arguments, "--quiet" in arguments).run()
