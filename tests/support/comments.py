"""AdminComments for orders that tests send themselves."""

from __future__ import annotations

HELD = "omfs:held:1?"
RELEASED = "omfs:rel:2?omfs:held:1"
