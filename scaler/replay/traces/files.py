"""A file's lines, whether it is packed or not; and what a load is called that comes from it.

It knows gzip by its first bytes, never by its name. Bytes that are no UTF-8 are kept as question marks: they are some
column nobody reads, or a bad row, which the reader of rows will say.

Worked example: of "/data/AzureLLMInferenceTrace_conv.csv.gz" the lines are those of the CSV inside, without their ends,
and the name is "AzureLLMInferenceTrace_conv".
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .recorded import BadLoad

_GZIP = b"\x1f\x8b"
_ENDINGS = (".gz", ".csv", ".jsonl", ".json", ".npz", ".txt")


@contextmanager
def reading(path: Path) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    """The bytes of a file, unpacked. Whatever fails on the way is a BadLoad."""
    try:
        with path.open("rb") as opened:
            packed = opened.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
            yield gzip.GzipFile(fileobj=opened) if packed else opened
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadLoad(f"{path}: its gzip is broken or cut short: {error}") from None
    except OSError as error:
        raise BadLoad(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def lines(path: Path) -> Iterator[Iterator[str]]:
    with reading(path) as opened:
        text = io.TextIOWrapper(opened, encoding="utf-8-sig", errors="replace")
        try:
            yield (line.rstrip("\r\n") for line in text)
        finally:
            text.detach()


def name_of(path: Path) -> str:
    name = path.name or str(path)
    while (cut := next((ending for ending in _ENDINGS if name.lower().endswith(ending)), None)) and name != cut:
        name = name[: -len(cut)]
    return name
