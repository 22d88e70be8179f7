"""dmtcp_restart: becomes the first process of the computation again, with the others as its children."""

import json
import os
import socket
import sys

import stand_in


def main(arguments):
    if arguments == ["--version"]:
        stand_in.version_or_hang("dmtcp_restart")
        return 0
    version, faults = stand_in.settings()
    told = os.environ.get("DMTCP_CHECKPOINT_DIR")
    options = stand_in.Options(arguments)
    if not options.rest:
        print("Usage: dmtcp_restart [OPTIONS] <ckpt1.dmtcp> [ckpt2.dmtcp...]")
        return stand_in.FAILED
    if os.geteuid() == 0:
        sys.stderr.write("WARNING:  Running dmtcp_restart as root can be dangerous.\n")
        sys.stderr.flush()
    images = [header(path, version) for path in options.rest]
    if "restart_99" in faults:
        stand_in.fail("the restart fails")
    directory = options.ckptdir or os.path.dirname(os.path.abspath(options.rest[0]))
    os.makedirs(directory, mode=0o700, exist_ok=True)
    # Only the environment tells the coordinator; without it the next restart script lands in the directory we run in.
    if told is None:
        os.environ.pop("DMTCP_CHECKPOINT_DIR", None)
    port = stand_in.begin_coordinator(options)
    os.environ["STAND_IN_DMTCP"] = version
    os.environ["STAND_IN_PORT"] = str(port)
    os.environ["STAND_IN_DIRECTORY"] = os.path.realpath(directory)  # resolved now, once and for all
    present = {image["virtual"] for image in images}
    roots = [image for image in images if image["parent"] not in present]
    bring_back(roots[0], [image for image in images if image is not roots[0]], len(images))
    return stand_in.FAILED


def header(path, version):
    try:
        with open(path, "rb") as file:
            image = json.loads(file.readline().decode())
            image["whole"] = os.fstat(file.fileno()).st_size >= image["size"]
            image["path"] = os.path.abspath(path)
    except (OSError, ValueError, KeyError, UnicodeDecodeError) as error:
        stand_in.fail(f"not a checkpoint image: {path}: {error}")
    if stand_in.number(image["version"]) >= (4,) > stand_in.number(version):
        stand_in.fail(f"image of a newer DMTCP: {path}")
    return image


def bring_back(image, others, count):
    """Become this process, its descendants first."""
    pids = {}
    children = [other for other in others if other["parent"] == image["virtual"]]
    for child in children:
        pid = os.fork()
        if pid == 0:
            bring_back(child, [other for other in others if other is not child], count)
        pids[str(child["virtual"])] = pid
    os.environ["STAND_IN_CHILDREN"] = json.dumps(pids)
    os.environ["STAND_IN_IMAGE"] = image["path"]
    os.environ["STAND_IN_EXPECTED"] = str(count)
    environment = dict(image["environment"])
    environment.update((name, value) for name, value in os.environ.items() if name.startswith(("STAND_IN_", "DMTCP_")))
    if image["directory"] != image["launched_in"]:
        os.chdir(image["directory"])
    if not image["whole"]:
        # A short image: up for the coordinator, and then it spins forever silently.
        channel = socket.create_connection(("127.0.0.1", int(os.environ["STAND_IN_PORT"])))
        hello = {
            "hello": 1,
            "pid": os.getpid(),
            "virtual": image["virtual"],
            "prog": image["prog"],
            "expected": count + 1,
        }
        hello.update(upid=image["upid"], state="WorkerState::RESTARTING")
        channel.sendall(json.dumps(hello).encode() + b"\n")
        while True:
            pass
    os.execve(image["arguments"][0], image["arguments"], environment)  # noqa: S606
