"""Loads from outside: published traces, a Prometheus' history, and shapes that are made up.

- `words`: what a person writes for a load.         - `formats`: which format a file is.
- `tables`, `mooncake`, `servegen`, `packed`: one format each.  - `generators`: made-up loads.
- `history`: counters through time to a load; who asks a Prometheus for them is `scaler.cli.replay.history`.
"""

from .formats import FORMATS
from .generators import GENERATORS
from .recorded import BadLoad, Recorded
from .spec import load

__all__ = ["FORMATS", "GENERATORS", "BadLoad", "Recorded", "load"]
