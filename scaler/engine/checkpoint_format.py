"""A `State` as bytes, and back: for a file, or for another replica. No pickle: what comes in may be anybody's.

    magic, 8 bytes | format, u16 | 6 zeros | length of the rest, u64 | BLAKE2b-256 of all but itself, 32 bytes
    length of the header, u32 | header, JSON | the arrays of the header one after the other, deflated together

Numbers are little-endian. The header names the workloads and their scale targets, and each array with its type and
shape. A reader skips names that it does not know and does without those that are missing, so neighbouring versions
read each other's; only another format number is refused. Nothing is allocated before the sizes have been compared with
a limit: what a state may cost follows from its header, and all states of one file share one limit.

Worked example: one workload, nothing remembered: 56 bytes, then about a hundred of header and 8 that say "no arrays".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from exporter.model import WorkloadKey
from scaler.columns import ROW, Array, Columns, State

MAGIC = b"TIDEGATE"
FORMAT = 1
_HEAD = Struct("<8sH6xQ")
_LENGTH = Struct("<I")
_DIGEST_BYTES = 32
_PREFIX_BYTES = _HEAD.size + _DIGEST_BYTES

# Types that an array may have; booleans are written as bytes, because a byte that is neither 0 nor 1 is no boolean.
_TYPES = {"<f8", "<f4", "<i8", "<i4", "|i1", "|u1", "|b1"}
# Of a file, and of what it is decoded to. 10,000 workloads take 165 MB decoded, and 11 MB deflated, or 61 MB if every
# bucket of their histograms holds another number.
LARGEST_BYTES = 2**28
# One workload has 16 KiB of columns, and 56 bytes for each page that counts requests: the base is 220,000 pages, and
# 4,096 missing series of 1.1 KiB (`scaler.signals.smoothing.open_gaps`).
_BASE_BYTES, _BYTES_PER_WORKLOAD = 2**24, 2**16
# Bytes of memory per byte of JSON: `{},` is three bytes, a dict of 64 and a pointer.
_HEADER_COST = 24
# A deflated byte stands for 1032 bytes at most (zlib, "Maximum Compression Factor").
_MOST_DEFLATED, _CHUNK_BYTES = 1032, 2**14
_MOST_ARRAYS, _MOST_AXES = 4096, 4
# POSIX seconds: the year 33,658. Sums of two such times are finite.
_LATEST = 1e12
# The fastest: rings are mostly small whole numbers and NaN, and it runs every few seconds beside the ticks.
_DEFLATE_LEVEL = 1


class UnreadableError(ValueError):
    """These bytes are no state that this version can take. The message says what is wrong and at which byte."""


class TornError(UnreadableError):
    """They are not what was written: a part is missing, or something else was put there."""


class OtherVersionError(UnreadableError):
    """The bytes are complete, as far as can be checked, but in a format that this version does not read."""


def pack(state: State) -> bytes:
    """One state as bytes. Arrays of other types than the format's are the writer's mistake: ValueError."""
    arrays: list[Array] = []
    header = {
        "at": state.at,
        "workloads": [list(workload) for workload in state.workloads],
        "targets": list(state.targets),
        "columns": _described(state.columns, arrays),
        "tables": {name: _described(table, arrays) for name, table in state.tables.items()},
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    deflate = zlib.compressobj(_DEFLATE_LEVEL)
    parts = [_LENGTH.pack(len(text)), text]
    parts += [deflate.compress(np.ascontiguousarray(array).data) for array in arrays]
    parts.append(deflate.flush())
    head = _HEAD.pack(MAGIC, FORMAT, sum(len(part) for part in parts))
    return b"".join((head, _digest(head, *parts), *parts))


def unpack(data: bytes, largest: int = LARGEST_BYTES) -> State:
    """The state in these bytes, of which there must be no more. Raises UnreadableError, and nothing else.

    largest: bytes of memory that the state may take.
    """
    state, end, _ = _read(memoryview(data), 0, largest)
    if end != len(data):
        raise TornError(f"byte {end}: the state has ended, and {len(data) - end} bytes follow")
    return state


def unpack_all(data: bytes, largest: int = LARGEST_BYTES) -> list[State]:
    """The states in these bytes, at least one, one after the other. Raises UnreadableError if any cannot be read.

    largest: bytes of memory that all of them may take together.
    """
    states: list[State] = []
    end, view = 0, memoryview(data)
    while end < len(data) or not states:
        state, end, cost = _read(view, end, largest)
        states.append(state)
        largest -= cost
    return states


def size_of(state: State) -> int:
    """Bytes of memory that the arrays of a state take."""
    return sum(column.nbytes for columns in (state.columns, *state.tables.values()) for column in columns.values())


def moment_of(read: Callable[[int], bytes]) -> float:
    """Returns `at` of the first state of a file without reading its arrays. The checksum is not verified.

    read: returns the next bytes of the file, at most as many as asked for. Raises UnreadableError.
    """
    prefix = read(_PREFIX_BYTES + _LENGTH.size)
    if len(prefix) != _PREFIX_BYTES + _LENGTH.size or prefix[: len(MAGIC)] != MAGIC:
        raise TornError("byte 0: no state begins here")
    if _HEAD.unpack_from(prefix)[1] != FORMAT:
        raise OtherVersionError("byte 8: another version wrote it")
    (length,) = _LENGTH.unpack_from(prefix, _PREFIX_BYTES)
    _check_header(length, LARGEST_BYTES)
    try:
        at = float(json.loads(read(length))["at"])
    except _MALFORMED as error:
        raise TornError(f"byte {_PREFIX_BYTES}: no header: {error!r}") from error
    _check_time(at)
    return at


def _read(data: memoryview, start: int, largest: int) -> tuple[State, int, int]:
    """The state that begins at `start`, where it ends, and the bytes of memory it takes."""
    if len(data) - start < _PREFIX_BYTES:
        raise TornError(f"byte {start}: {_PREFIX_BYTES} bytes must begin a state, got {len(data) - start}")
    magic, number, length = _HEAD.unpack_from(data, start)
    if magic != MAGIC:
        raise TornError(f"byte {start}: a state must begin with {MAGIC.decode()}, got {magic!r}")
    if number != FORMAT:
        raise OtherVersionError(f"byte {start + 8}: format must be {FORMAT}, got {number}: another version wrote it")
    begin = start + _PREFIX_BYTES
    body = data[begin : begin + length]
    if len(body) != length:
        raise TornError(f"byte {begin}: {length} bytes must follow, got {len(body)}")
    head, checksum = data[start : start + _HEAD.size], bytes(data[start + _HEAD.size : begin])
    if _digest(head, body) != checksum:
        raise TornError(f"byte {begin}: the checksum of {length} bytes does not match what is there")
    # From here on it is what its writer meant; but who wrote it may not have meant well.
    state, cost = _state(body, begin, largest)
    return state, begin + length, cost


_MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, zlib.error)


def _state(body: memoryview, begin: int, largest: int) -> tuple[State, int]:
    if len(body) < _LENGTH.size:
        raise TornError(f"byte {begin}: no header")
    (length,) = _LENGTH.unpack_from(body)
    rest = _LENGTH.size + length
    cost = _check_header(length, largest)
    try:
        header = json.loads(bytes(body[_LENGTH.size : rest]))
        at = float(header["at"])
        workloads = tuple(_workload(entry) for entry in header["workloads"])
        targets = _targets(header.get("targets") or [], len(workloads))
        columns, tables = _shapes(header["columns"]), {str(n): _shapes(t) for n, t in header["tables"].items()}
        _check(at, len(workloads), columns, tables)
        shapes = [*columns.values(), *(s for t in tables.values() for s in t.values())]
        allowed = min(largest - cost, _BASE_BYTES + _BYTES_PER_WORKLOAD * len(workloads))
        arrays = _arrays(body[rest:], shapes, allowed)
        found = {name: next(arrays) for name in columns}
        more = {name: {each: next(arrays) for each in table} for name, table in tables.items()}
        _check_rows(more, len(workloads))
    except TornError:
        raise
    except _MALFORMED as error:
        raise TornError(f"byte {begin}: the header or its arrays cannot be read: {error!r}") from error
    state = State(at, workloads, found, more, targets)
    return state, cost + size_of(state)


def _check_header(length: int, largest: int) -> int:
    """Returns the bytes of memory that a header of so many bytes takes at most."""
    cost = _HEADER_COST * length
    if cost > largest:
        raise TornError(f"its header has {length} bytes; more than {max(0, largest) // _HEADER_COST} are refused")
    return cost


def _check_time(at: float) -> None:
    if not abs(at) <= _LATEST:  # so that NaN is refused as well
        raise TornError(f"at: must be POSIX seconds, got {at}")


_Shape = tuple[str, tuple[int, ...]]


def _described(columns: Columns, arrays: list[Array]) -> dict[str, Any]:
    """Type and shape of each, as the header has them; the arrays themselves go to the end of `arrays`."""
    described = {}
    for name, column in columns.items():
        array = column.astype(column.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in _TYPES:
            raise ValueError(f"{name}: a state has no arrays of {array.dtype}")
        arrays.append(array)
        described[name] = [array.dtype.str, list(array.shape)]
    return described


def _shapes(described: Mapping[str, Any]) -> dict[str, _Shape]:
    shapes = {}
    for name, (dtype, shape) in described.items():
        if dtype not in _TYPES or not 1 <= len(shape) <= _MOST_AXES:
            raise TornError(f"{name}: an array of {dtype!r} and {len(shape)} axes is none of this format's")
        # An axis of length 0 must not hide others that no array can have.
        whole = all(isinstance(length, int) and length >= 0 for length in shape)
        if not whole or prod(max(1, length) for length in shape) > LARGEST_BYTES:
            raise TornError(f"{name}: no shape: {shape!r}")
        shapes[str(name)] = dtype, tuple(shape)
    return shapes


def _workload(entry: Any) -> WorkloadKey:
    namespace, name, trigger = entry
    if not (isinstance(namespace, str) and isinstance(name, str) and isinstance(trigger, str)):
        raise TornError(f"no workload: {entry!r}")
    return WorkloadKey(namespace, name, trigger)


def _targets(header: Any, workloads: int) -> tuple[str, ...]:
    """The scale targets, one per workload; none where the version that wrote the state did not record them."""
    if not isinstance(header, list) or not all(isinstance(target, str) for target in header):
        raise TornError("targets: must be a list of text")
    if len(header) not in {0, workloads}:
        raise TornError(f"targets: must be {workloads}, one per workload, got {len(header)}")
    return tuple(header)


def _check(at: float, rows: int, columns: Mapping[str, _Shape], tables: Mapping[str, Mapping[str, _Shape]]) -> None:
    _check_time(at)
    if len(columns) + sum(len(table) for table in tables.values()) > _MOST_ARRAYS:
        raise TornError(f"more than {_MOST_ARRAYS} arrays")
    for name, (_, shape) in columns.items():
        if shape[0] != rows:
            raise TornError(f"{name}: must have {rows} slots, one per workload, got {shape[0]}")
    for name, table in tables.items():
        if table.get(ROW, ("", ()))[0] != "<i8" or len({shape[0] for _, shape in table.values()}) != 1:
            raise TornError(f"{name}: a table has columns of one length, and `{ROW}` among them")


def _check_rows(tables: Mapping[str, Columns], rows: int) -> None:
    for name, table in tables.items():
        if ((table[ROW] < 0) | (table[ROW] >= rows)).any():
            raise TornError(f"{name}.{ROW}: must be a slot, 0 to {rows - 1}")


def _arrays(deflated: memoryview, shapes: list[_Shape], largest: int) -> Iterator[Array]:
    """The arrays one by one. Raises before anything is allocated if they take more than `largest` bytes."""
    sizes = [np.dtype(dtype).itemsize * prod(shape) for dtype, shape in shapes]
    total = sum(sizes)
    if total > largest:
        raise TornError(f"its arrays take {total} bytes; more than {largest} are refused")
    if total > _MOST_DEFLATED * len(deflated):
        raise TornError(f"its arrays take {total} bytes, which {len(deflated)} deflated bytes cannot hold")
    return _cut(_inflated(deflated, total), shapes, sizes)


def _inflated(deflated: memoryview, total: int) -> bytearray:
    """Exactly `total` bytes. In chunks: the memory taken besides is that of one chunk, inflated."""
    raw, inflate, filled, start = bytearray(total), zlib.decompressobj(), 0, 0
    while start < len(deflated) and not inflate.eof and filled <= total:
        chunk = inflate.decompress(deflated[start : start + _CHUNK_BYTES], total - filled + 1)
        raw[filled : filled + len(chunk)] = chunk
        filled, start = filled + len(chunk), start + _CHUNK_BYTES
    if filled != total or not inflate.eof or inflate.unused_data or start < len(deflated):
        raise TornError(f"its arrays must take {total} bytes, and do not")
    return raw


def _cut(raw: bytearray, shapes: list[_Shape], sizes: list[int]) -> Iterator[Array]:
    start = 0
    for (dtype, shape), size in zip(shapes, sizes, strict=True):
        kept = np.dtype(np.uint8 if dtype == "|b1" else dtype)
        # Not copied: who takes a column copies the slots it wants.
        flat = np.frombuffer(raw, dtype=kept, count=size // kept.itemsize, offset=start) if size else np.empty(0, kept)
        start += size
        yield (flat != 0 if dtype == "|b1" else flat).reshape(shape)


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
