"""Tests the byte format: a written state is read back unchanged, and other bytes are refused with a reason."""

import json
import struct
import tracemalloc
import zlib
from base64 import b64decode
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.columns import State
from scaler.engine.checkpoint_format import (
    FORMAT,
    OtherVersionError,
    TornError,
    UnreadableError,
    pack,
    unpack,
    unpack_all,
)
from tests.scaler.engine.checkpoint.conftest import same, states

PREFIX = 56


@given(states())
def test_state_survives_a_round_trip_bit_by_bit(state):
    same(unpack(pack(state)), state)


@given(st.lists(states(), min_size=1, max_size=3))
def test_several_states_are_read_back_in_order(several):
    back = unpack_all(b"".join(pack(state) for state in several))
    assert len(back) == len(several)
    for one, other in zip(back, several, strict=True):
        same(one, other)


def test_truncated_state_is_refused(small):
    data = pack(small)
    for end in range(len(data)):
        with pytest.raises(TornError, match="byte"):
            unpack(data[:end])


def test_state_with_a_flipped_bit_is_refused(small):
    data = pack(small)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(UnreadableError):
                unpack(bytes(flipped))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data):
    with pytest.raises(TornError):
        unpack(data)


def test_empty_file_is_torn():
    with pytest.raises(TornError, match="byte 0: 56 bytes must begin a state, got 0"):
        unpack_all(b"")


def test_torn_end_of_several_states_is_refused_with_its_position(small):
    data = pack(small)
    with pytest.raises(TornError, match=f"byte {len(data)}: 56 bytes must begin a state, got 3"):
        unpack_all(data + b"abc")
    with pytest.raises(TornError, match=f"byte {len(data)}: the state has ended, and 3 bytes follow"):
        unpack(data + b"abc")


def test_format_of_another_version_is_named_and_not_called_torn(small):
    data = bytearray(pack(small))
    data[8] = FORMAT + 1
    with pytest.raises(OtherVersionError, match=r"byte 8: format must be 1, got 2: another version wrote it"):
        unpack(bytes(data))


# The bytes that the first version wrote for `small`.
WRITTEN = (
    "VElERUdBVEUBAAAAAAAAAE0BAAAAAAAAg3Sl8usYN2sQWU7XwNWdx+JEH/2hODmVcf/RQ928FrUZAQAAeyJhdCI6MTAwMC4wLCJ3"
    "b3JrbG9hZHMiOltbImFpIiwiY2hhdCIsIiJdLFsiYWkiLCJjb2RlIiwiZGVjb2RlIl1dLCJjb2x1bW5zIjp7Im1lbW9yeS5yZXBs"
    "aWNhcyI6WyI8ZjgiLFsyXV0sIm1lbW9yeS5hY3RpdmUiOlsifGIxIixbMl1dLCJtZW1vcnkuaWRsZV9zaW5jZSI6WyI8ZjgiLFsy"
    "XV0sIndpbmRvd3MudGltZXMiOlsiPGY4IixbMiwyXV19LCJ0YWJsZXMiOnsicGFnZXMiOnsicm93IjpbIjxpOCIsWzJdXSwia2V5"
    "IjpbInx1MSIsWzIsMl1dLCJoZWFyZF9hdCI6WyI8ZjgiLFsyXV19fX14AWNgAAEOBzDF8KOeEcIAssAMhR6ozAd7qASUj6kDppOR"
    "iZkFoham54M9APcHCbw="
)


def test_bytes_of_the_first_version_are_read_unchanged(small):
    """If this fails, existing checkpoints become unreadable: raise `FORMAT` and record it in the changelog."""
    same(unpack(b64decode(WRITTEN)), small)


def sealed(header, arrays=b"", number=FORMAT, after=b""):
    """Bytes with a valid checksum over arbitrary content, as a malicious writer would produce them."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = struct.pack("<I", len(text)) + text + zlib.compress(arrays) + after
    head = struct.pack("<8sH6xQ", b"TIDEGATE", number, len(body))
    return head + blake2b(head + body, digest_size=32).digest() + body


GOOD = {"at": 1.0, "workloads": [["ai", "chat", ""]], "columns": {}, "tables": {}}


def test_unknown_header_keys_are_skipped():
    state = unpack(sealed(GOOD | {"more": {"of": "this"}}))
    assert (state.at, state.workloads) == (1.0, (WorkloadKey("ai", "chat"),))


def test_state_without_recorded_scale_targets_has_none():
    state = unpack(sealed(GOOD))
    assert (state.targets, state.identities) == ((), ((WorkloadKey("ai", "chat"), ""),))


@pytest.mark.parametrize(
    "change",
    [
        {"targets": "Deployment/chat"},
        {"targets": [7]},
        {"targets": ["Deployment/chat", "Deployment/code"]},
        {"at": float("nan")},
        {"at": "soon"},
        {"at": 10**400},
        {"workloads": [["ai", "chat"]]},
        {"workloads": [["ai", "chat", 7]]},
        {"workloads": 5},
        {"columns": []},
        {"columns": {"x": 5}},
        {"columns": {"x": ["<f8", [2]]}},
        {"columns": {"x": ["<f8", []]}},
        {"columns": {"x": ["<f8", [1, -1]]}},
        {"columns": {"x": ["<f8", [1, 1.5]]}},
        {"columns": {"x": ["<f8", [1, 1, 1, 1, 1]]}},
        {"columns": {"x": ["|O", [1]]}},
        {"columns": {"x": [["<f8"], [1]]}},
        {"columns": {"x": ["<f8", [1]]}},
        {"columns": {"x": ["<f8", [1, 2**30, 2**30]]}},
        {"columns": {"x": ["<f8", [1, 0, 2**30, 2**30]]}},
        {"at": 1e13},
        {"columns": {str(n): ["<f8", [1, 0]] for n in range(5000)}},
        {"tables": {"pages": {}}},
        {"tables": {"pages": {"key": ["|u1", [0]]}}},
        {"tables": {"pages": {"row": ["<f8", [0]]}}},
        {"tables": {"pages": {"row": ["<i8", [0]], "key": ["|u1", [1]]}}},
    ],
    ids=str,
)
def test_impossible_header_is_refused_before_any_allocation(change):
    with pytest.raises(TornError):
        unpack(sealed(GOOD | change))


@pytest.mark.parametrize("header", [b"", b"[", b"5", b"[" * 100_000, b"\xff", b'{"at": 1}'])
def test_invalid_header_is_refused(header):
    with pytest.raises(TornError):
        unpack(sealed(header))


@pytest.mark.parametrize("row", [-1, 1, 2**62])
def test_table_row_of_no_workload_is_refused(row):
    header = GOOD | {"tables": {"pages": {"row": ["<i8", [1]]}}}
    with pytest.raises(TornError, match=r"pages.row: must be a slot, 0 to 0"):
        unpack(sealed(header, struct.pack("<q", row)))


@pytest.mark.parametrize("length", [0, 7, 9, 1000])
def test_arrays_of_another_size_than_announced_are_refused(length):
    header = GOOD | {"columns": {"x": ["<f8", [1]]}}
    with pytest.raises(TornError, match="its arrays must take 8 bytes, and do not"):
        unpack(sealed(header, bytes(length)))


def test_bytes_after_the_arrays_are_refused():
    header = GOOD | {"columns": {"x": ["<f8", [1]]}}
    with pytest.raises(TornError, match="its arrays must take 8 bytes, and do not"):
        unpack(sealed(header, bytes(8), after=b"more"))


def test_state_above_the_limit_is_refused(small):
    (header,) = struct.unpack_from("<I", pack(small), PREFIX)
    with pytest.raises(TornError, match="its arrays take 102 bytes; more than 101 are refused"):
        unpack(pack(small), largest=24 * header + 101)
    same(unpack(pack(small), largest=24 * header + 102), small)
    with pytest.raises(TornError, match=f"its header has {header} bytes; more than {header - 1} are refused"):
        unpack(pack(small), largest=24 * header - 1)


def test_all_states_of_a_file_share_one_limit(small):
    data = pack(small)
    (header,) = struct.unpack_from("<I", data, PREFIX)
    cost = 24 * header + 102
    assert len(unpack_all(data * 3, largest=3 * cost)) == 3
    with pytest.raises(TornError, match="its arrays take 102 bytes; more than 101 are refused"):
        unpack_all(data * 3, largest=3 * cost - 1)


def peak_of(work):
    """Returns the peak of allocated bytes during `work`, and the message of its error."""
    tracemalloc.start()
    try:
        with pytest.raises(TornError) as raised:
            work()
        return tracemalloc.get_traced_memory()[1], str(raised.value)
    finally:
        tracemalloc.stop()


def test_arrays_too_large_for_few_workloads_are_not_allocated():
    """A gigabyte of zeros deflates to a megabyte."""
    columns = {str(n): ["|u1", [1, 2**24]] for n in range(60)}
    deflate = zlib.compressobj()
    parts = [deflate.compress(bytes(2**20)) for _ in range(60 * 16)]
    header = json.dumps(GOOD | {"columns": columns}).encode()
    body = struct.pack("<I", len(header)) + header + b"".join(parts) + deflate.flush()
    head = struct.pack("<8sH6xQ", b"TIDEGATE", FORMAT, len(body))
    data = head + blake2b(head + body, digest_size=32).digest() + body
    peak, why = peak_of(lambda: unpack(data))
    assert why == "its arrays take 1006632960 bytes; more than 16842752 are refused"
    assert peak < 2**20


def test_arrays_too_large_for_the_compressed_bytes_are_not_allocated():
    header = GOOD | {"columns": {"x": ["<f8", [1, 2**20]]}}
    peak, why = peak_of(lambda: unpack(sealed(header)))
    assert "its arrays take 8388608 bytes, which 8 deflated bytes cannot hold" in why
    assert peak < 2**20


def test_inflation_stops_at_the_announced_size():
    data = sealed(GOOD | {"columns": {"x": ["<f8", [1]]}}, bytes(2**26))
    peak, _ = peak_of(lambda: unpack(data))
    assert peak < 2**20


@pytest.mark.parametrize("item", [b"[]", b"{}", b'""', b"0.5"])
def test_header_of_empty_values_is_not_parsed(item):
    """Three bytes of JSON take 72 bytes of memory."""
    data = sealed(b'{"workloads":[' + b",".join([item] * 4_000_000) + b"]}")
    peak, why = peak_of(lambda: unpack(data))
    assert "bytes; more than 11184810 are refused" in why
    assert peak < 2**20


def test_invalid_boolean_byte_is_read_as_true_or_false():
    header = GOOD | {"columns": {"x": ["|b1", [1, 3]]}}
    assert unpack(sealed(header, b"\x00\x01\x07")).columns["x"].tolist() == [[False, True, True]]


def test_big_endian_arrays_are_converted():
    state = State(1.0, (WorkloadKey("ai", "chat"),), {"x": np.array([5.0], dtype=">f8")})
    assert unpack(pack(state)).columns["x"].tolist() == [5.0]


def test_array_of_objects_is_an_error_of_the_writer():
    with pytest.raises(ValueError, match="x: a state has no arrays of object"):
        pack(State(1.0, (WorkloadKey("ai", "chat"),), {"x": np.array([None])}))
