"""The modes of a transaction: its atomicity and its durability. Pure.

Owns: which modes there are, and which of them go together.
"""

from dodona_wire.errors import InvalidRequest
from dodona_wire.shown import shown


def check_modes(atomicity: str, durability: str) -> None:
    """Check that the modes exist and can be combined. Raises InvalidRequest."""
    if atomicity not in ("full", "none"):
        raise InvalidRequest(f'Atomicity must be "full" or "none", not {shown(atomicity)}')
    if durability not in ("sync", "async"):
        raise InvalidRequest(f'Durability must be "sync" or "async", not {shown(durability)}')
    if atomicity == "full" and durability == "async":
        raise InvalidRequest(
            'Durability must be "sync" for tablet transactions with "full" atomicity'
        )
