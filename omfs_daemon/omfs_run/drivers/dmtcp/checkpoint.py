"""How it is checkpointed."""


_LONGEST_POLL = 0.5
# A coordinator that refused leaves the program RUNNING; one that accepted stops it within milliseconds.
_REFUSED_AFTER = 2.0
# The restart script comes last, possibly after the program has gone.
_PATIENCE = 5.0
_LEAVE_SECONDS = 5.0
