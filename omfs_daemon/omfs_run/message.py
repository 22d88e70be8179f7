"""Plain words in the job's output."""

import sys


def say(text: str) -> None:
    """One line on stderr; what a user can have written in it is made visible."""
    line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    try:
        sys.stderr.write("omfs-run: {}\n".format(line.encode("utf-8", "backslashreplace").decode("utf-8")))
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # a full disk under the job's output must not end the job
