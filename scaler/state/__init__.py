"""What survives a restart: one value, and the bytes it travels in. Pure: who writes the bytes where, others know.

Worked example: `unpack(pack(state))` is `state` again; with one bit of the bytes turned over it is a `TornError`.
"""

from __future__ import annotations

from .kept import Kept
from .record import (
    ROW,
    Array,
    Columns,
    Identities,
    Identity,
    State,
    copy_into,
    fitting,
    named,
    pairs,
    plausible,
    translated,
)
from .wire import FORMAT, OtherVersionError, TornError, UnreadableError, pack, unpack, unpack_all

__all__ = [
    "FORMAT",
    "ROW",
    "Array",
    "Columns",
    "Identities",
    "Identity",
    "Kept",
    "OtherVersionError",
    "State",
    "TornError",
    "UnreadableError",
    "copy_into",
    "fitting",
    "named",
    "pack",
    "pairs",
    "plausible",
    "translated",
    "unpack",
    "unpack_all",
]
