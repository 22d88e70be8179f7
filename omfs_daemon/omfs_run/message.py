"""Messages in the job's output."""

import sys


def message(text: str) -> None:
    """Write one line to stderr, with control characters escaped."""
    line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    try:
        sys.stderr.write("omfs-run: {}\n".format(line.encode("utf-8", "backslashreplace").decode("utf-8")))
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # a full disk under the job's output must not end the job
