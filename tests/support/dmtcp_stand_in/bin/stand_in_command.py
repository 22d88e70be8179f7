"""dmtcp_command: what each release replies, true or not."""

import json
import os
import sys
import time

import stand_in

NOT_RUNNING = (
    "Error, computation not in running state.  Either a checkpoint is\n"
    " currently happening or there are no connected processes.\n"
)
FALSE_TEXT = "Computation was checkpointed and killed."


def main(arguments):
    version, faults = stand_in.settings()
    number = stand_in.number(version)
    if arguments == ["--version"]:
        stand_in.version_or_hang("dmtcp_command")
        return 1
    names = {
        "s": "status",
        "status": "status",
        "l": "list",
        "list": "list",
        "c": "checkpoint",
        "checkpoint": "checkpoint",
    }
    names.update(
        {"bc": "bcheckpoint", "bcheckpoint": "bcheckpoint", "k": "kill", "kill": "kill", "q": "quit", "quit": "quit"}
    )
    killing = ("xc", "xcheckpoint") if number < (3,) else ("kc", "kcheckpoint")
    names.update(dict.fromkeys(killing, "kcheckpoint"))
    port, command, as_json = os.environ.get("DMTCP_COORD_PORT", ""), "", False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-p", "--coord-port", "-h", "--coord-host") and rest:
            value = rest.pop(0)
            port = value if word in ("-p", "--coord-port") else port
        elif word == "--json" and number >= (5,):
            as_json = True
        elif word in ("-i", "--interval") and rest:
            rest.pop(0)
            command = "interval"
        elif word.lstrip("-") in names:
            command = names[word.lstrip("-")]
        else:
            sys.stderr.write("Usage:  dmtcp_command [OPTIONS] COMMAND [COMMAND...]\n")
            return 1
    if "hang_command" in faults:
        time.sleep(3600)
    shown_port = int(port or stand_in.DEFAULT_PORT)
    try:
        answer = stand_in.talk(shown_port, {"command": command})
    except OSError:
        time.sleep(1.0)  # the real one tries again
        if as_json:
            print(json.dumps({"command_status": "DMT_COORD_NOT_FOUND"}))
        sys.stderr.write("Coordinator not found. Please check port and host.\n")
        return 2
    except EOFError:
        return 2 if command == "quit" else stand_in.FAILED
    return tell(command, answer, number, shown_port, as_json)


def tell(command, answer, number, port, as_json):
    refused = "error" in answer
    if as_json:
        told = {"schema_version": 1, "coord_port": port}
        told["command_status"] = "DMT_COORD_NOT_RUNNING" if refused else "DMT_COORD_SUCCESS"
        if command == "status":
            told.update(num_peers=answer["peers"], running=answer["running"])
        print(json.dumps(told))
        return 2 if refused else 0
    if command == "kcheckpoint":
        # 3.2 to 4.2 repeat the request that was just accepted, and are refused.
        if refused or (3, 2) <= number < (5,):
            print(FALSE_TEXT)
            return 2
        return 0
    if refused:
        sys.stderr.write(NOT_RUNNING)
        return 2
    if command in ("status", "list"):
        print(f"Coordinator:\n  Host: 127.0.0.1\n  Port: {port}")
    if command == "status":
        print("Status...\n  NUM_PEERS={}\n  RUNNING={}".format(answer["peers"], "yes" if answer["running"] else "no"))
        print("  CKPT_INTERVAL=0 (checkpoint manually)")
    elif command == "list":
        sys.stdout.write(answer["list"])
    return 0
