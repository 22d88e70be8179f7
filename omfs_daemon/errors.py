"""Every error that this package raises on purpose.

Operators see ``str(error)``: one line that says what is wrong, where, and what is allowed.
"""


class OmfsError(Exception):
    """The base of all errors of omfs-daemon."""


class ConfigError(OmfsError):
    """A configuration or an input is wrong; the text names file, key, value and what is allowed."""


class NothingFound(OmfsError):
    """The input is good, but nothing in it is what was asked for."""


class GatewayError(OmfsError):
    """Slurm could not be queried or did not take an order; nothing may be decided on old data."""


class GatewayTimeout(GatewayError):
    """A call to Slurm took longer than its timeout; whether it took effect is unknown."""


class ParseError(GatewayError):
    """Slurm's output is not understood; the text holds the line."""


class JournalError(OmfsError):
    """The journal cannot be read or written; no step may be taken without it."""


class FormatError(OmfsError):
    """A file is in the format of another version, or in none; the text says what to do with it."""


class ControlError(OmfsError):
    """The daemon refused a request on its socket, or cannot be reached."""


class UnreachableError(ControlError):
    """No daemon answers on the control socket, or no accounting."""


class NotRunningError(UnreachableError):
    """Nobody listens where the daemon would."""


class UnansweredError(ControlError):
    """A daemon answers, but cannot say: Slurm has not answered it yet, or the other daemon acts."""


class DeniedError(ControlError):
    """The caller does not have the permission."""
