"""Every error that this package raises on purpose.

An operator sees ``str(error)``: one line that says what, where, and what is allowed.
"""


class OmfsError(Exception):
    """The base of all errors of omfs-daemon."""


class ConfigError(OmfsError):
    """A configuration or an input is wrong; the text names file, key, value and what is allowed."""


class GatewayError(OmfsError):
    """Slurm could not be asked or told; nothing may be decided on old data."""


class GatewayTimeout(GatewayError):
    """A call to Slurm took longer than its time-out; whether it took effect is unknown."""


class ParseError(GatewayError):
    """Slurm printed something that is not understood; the text holds the line."""


class JournalError(OmfsError):
    """The journal cannot be read or written; no step may be taken without it."""


class ControlError(OmfsError):
    """The daemon refused a request on its socket, or cannot be reached."""
