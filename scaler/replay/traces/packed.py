"""Loads in NumPy's npz: three arrays, small and quick to read.

`dt_ms`: milliseconds since the request before; the first: since the load's beginning. `inp`, `out`: tokens. Nothing is
unpickled: a file that wants that is no load.

Worked example: dt_ms [500, 250], inp [100, 20], out [7, 300] is a request at 0.5 s and one at 0.75 s.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from .files import reading
from .recorded import MOST_TOKENS, BadLoad, Recorded, recorded

SIGN = b"PK\x03\x04"
ARRAYS = ("dt_ms", "inp", "out")


def read_packed(name: str, path: Path) -> Recorded:
    with reading(path) as opened:
        body = io.BytesIO(opened.read())
    try:
        with np.load(body, allow_pickle=False) as arrays:
            columns = [np.asarray(arrays[one], dtype=float) for one in ARRAYS]
    except KeyError:
        raise BadLoad(f"{path}: must have the arrays {', '.join(ARRAYS)}") from None
    except (ValueError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise BadLoad(f"{path}: is no npz of numbers: {error}") from None
    if any(column.ndim != 1 or len(column) != len(columns[0]) for column in columns):
        raise BadLoad(f"{path}: {', '.join(ARRAYS)} must be of one length, got {[one.shape for one in columns]}")
    gaps, prompt, output = columns
    good = np.isfinite(gaps) & (gaps >= 0.0)
    good &= (prompt >= 0.0) & (prompt <= MOST_TOKENS) & (output >= 0.0) & (output <= MOST_TOKENS)
    if not good.all():
        # A gap that is wrong moves all that come after it: unlike a row of a table it cannot be left out.
        first = int(np.argmin(good))
        got = ", ".join(f"{one}={column[first]:g}" for one, column in zip(ARRAYS, columns, strict=True))
        raise BadLoad(f"{path}: request {first}: must be numbers from 0, tokens to {MOST_TOKENS:g}, got {got}")
    return recorded(name, np.cumsum(gaps) / 1000, prompt, output)
