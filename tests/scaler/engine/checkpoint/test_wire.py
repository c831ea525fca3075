"""A state as bytes: what was written comes back, and anything else is refused by name."""

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
def test_a_state_comes_back_bit_by_bit(state):
    same(unpack(pack(state)), state)


@given(st.lists(states(), min_size=1, max_size=3))
def test_several_states_come_back_in_their_order(several):
    back = unpack_all(b"".join(pack(state) for state in several))
    assert len(back) == len(several)
    for one, other in zip(back, several, strict=True):
        same(one, other)


def test_bytes_torn_anywhere_are_refused_and_nothing_else_happens(small):
    data = pack(small)
    for end in range(len(data)):
        with pytest.raises(TornError, match="byte"):
            unpack(data[:end])


def test_a_state_with_any_bit_turned_over_is_refused_and_nothing_else_happens(small):
    data = pack(small)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(UnreadableError):
                unpack(bytes(flipped))


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_refused(data):
    with pytest.raises(TornError):
        unpack(data)


def test_a_file_in_which_nothing_is_was_torn():
    with pytest.raises(TornError, match="byte 0: 56 bytes must begin a state, got 0"):
        unpack_all(b"")


def test_of_several_states_one_torn_end_is_refused_with_its_place(small):
    data = pack(small)
    with pytest.raises(TornError, match=f"byte {len(data)}: 56 bytes must begin a state, got 3"):
        unpack_all(data + b"abc")
    with pytest.raises(TornError, match=f"byte {len(data)}: the state has ended, and 3 bytes follow"):
        unpack(data + b"abc")


def test_another_format_is_said_to_be_another_versions_and_is_not_called_torn(small):
    data = bytearray(pack(small))
    data[8] = FORMAT + 1
    with pytest.raises(OtherVersionError, match=r"byte 8: format must be 1, got 2: another version wrote it"):
        unpack(bytes(data))


# What the first version has written of `small`.
WRITTEN = (
    "VElERUdBVEUBAAAAAAAAAE0BAAAAAAAAg3Sl8usYN2sQWU7XwNWdx+JEH/2hODmVcf/RQ928FrUZAQAAeyJhdCI6MTAwMC4wLCJ3"
    "b3JrbG9hZHMiOltbImFpIiwiY2hhdCIsIiJdLFsiYWkiLCJjb2RlIiwiZGVjb2RlIl1dLCJjb2x1bW5zIjp7Im1lbW9yeS5yZXBs"
    "aWNhcyI6WyI8ZjgiLFsyXV0sIm1lbW9yeS5hY3RpdmUiOlsifGIxIixbMl1dLCJtZW1vcnkuaWRsZV9zaW5jZSI6WyI8ZjgiLFsy"
    "XV0sIndpbmRvd3MudGltZXMiOlsiPGY4IixbMiwyXV19LCJ0YWJsZXMiOnsicGFnZXMiOnsicm93IjpbIjxpOCIsWzJdXSwia2V5"
    "IjpbInx1MSIsWzIsMl1dLCJoZWFyZF9hdCI6WyI8ZjgiLFsyXV19fX14AWNgAAEOBzDF8KOeEcIAssAMhR6ozAd7qASUj6kDppOR"
    "iZkFoham54M9APcHCbw="
)


def test_what_the_first_version_has_written_is_read_as_it_was_meant(small):
    """If this fails, snapshots that lie on people's disks are lost: `FORMAT` must rise, and the changelog say so."""
    same(unpack(b64decode(WRITTEN)), small)


def sealed(header, arrays=b"", number=FORMAT, after=b""):
    """Bytes with a right checksum, whatever is in them: a writer that means no good."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = struct.pack("<I", len(text)) + text + zlib.compress(arrays) + after
    head = struct.pack("<8sH6xQ", b"TIDEGATE", number, len(body))
    return head + blake2b(head + body, digest_size=32).digest() + body


GOOD = {"at": 1.0, "workloads": [["ai", "chat", ""]], "columns": {}, "tables": {}}


def test_what_the_next_version_adds_to_the_header_is_skipped():
    state = unpack(sealed(GOOD | {"more": {"of": "this"}}))
    assert (state.at, state.workloads) == (1.0, (WorkloadKey("ai", "chat"),))


def test_state_of_a_version_that_recorded_no_scale_targets_has_none():
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
def test_a_header_that_cannot_be_is_refused_before_anything_is_allocated(change):
    with pytest.raises(TornError):
        unpack(sealed(GOOD | change))


@pytest.mark.parametrize("header", [b"", b"[", b"5", b"[" * 100_000, b"\xff", b'{"at": 1}'])
def test_a_header_that_is_no_header_is_refused(header):
    with pytest.raises(TornError):
        unpack(sealed(header))


@pytest.mark.parametrize("row", [-1, 1, 2**62])
def test_a_table_that_speaks_of_nobody_is_refused(row):
    header = GOOD | {"tables": {"pages": {"row": ["<i8", [1]]}}}
    with pytest.raises(TornError, match=r"pages.row: must be a slot, 0 to 0"):
        unpack(sealed(header, struct.pack("<q", row)))


@pytest.mark.parametrize("length", [0, 7, 9, 1000])
def test_arrays_that_are_more_or_less_than_was_said_are_refused(length):
    header = GOOD | {"columns": {"x": ["<f8", [1]]}}
    with pytest.raises(TornError, match="its arrays must take 8 bytes, and do not"):
        unpack(sealed(header, bytes(length)))


def test_what_follows_the_arrays_is_not_read_over():
    header = GOOD | {"columns": {"x": ["<f8", [1]]}}
    with pytest.raises(TornError, match="its arrays must take 8 bytes, and do not"):
        unpack(sealed(header, bytes(8), after=b"more"))


def test_more_than_the_limit_is_not_taken(small):
    (header,) = struct.unpack_from("<I", pack(small), PREFIX)
    with pytest.raises(TornError, match="its arrays take 102 bytes; more than 101 are not taken"):
        unpack(pack(small), largest=24 * header + 101)
    same(unpack(pack(small), largest=24 * header + 102), small)
    with pytest.raises(TornError, match=f"its header has {header} bytes; more than {header - 1} are not taken"):
        unpack(pack(small), largest=24 * header - 1)


def test_all_states_of_a_file_share_one_limit(small):
    data = pack(small)
    (header,) = struct.unpack_from("<I", data, PREFIX)
    cost = 24 * header + 102
    assert len(unpack_all(data * 3, largest=3 * cost)) == 3
    with pytest.raises(TornError, match="its arrays take 102 bytes; more than 101 are not taken"):
        unpack_all(data * 3, largest=3 * cost - 1)


def peak_of(work):
    """Bytes that were allocated at once meanwhile, and the error."""
    tracemalloc.start()
    try:
        with pytest.raises(TornError) as raised:
            work()
        return tracemalloc.get_traced_memory()[1], str(raised.value)
    finally:
        tracemalloc.stop()


def test_arrays_that_few_workloads_cannot_have_are_not_allocated():
    """A gigabyte of zeros is a megabyte deflated."""
    columns = {str(n): ["|u1", [1, 2**24]] for n in range(60)}
    deflate = zlib.compressobj()
    parts = [deflate.compress(bytes(2**20)) for _ in range(60 * 16)]
    header = json.dumps(GOOD | {"columns": columns}).encode()
    body = struct.pack("<I", len(header)) + header + b"".join(parts) + deflate.flush()
    head = struct.pack("<8sH6xQ", b"TIDEGATE", FORMAT, len(body))
    data = head + blake2b(head + body, digest_size=32).digest() + body
    peak, why = peak_of(lambda: unpack(data))
    assert why == "its arrays take 1006632960 bytes; more than 16842752 are not taken"
    assert peak < 2**20


def test_arrays_that_so_few_bytes_cannot_hold_are_not_allocated():
    header = GOOD | {"columns": {"x": ["<f8", [1, 2**20]]}}
    peak, why = peak_of(lambda: unpack(sealed(header)))
    assert "its arrays take 8388608 bytes, which 8 deflated bytes cannot hold" in why
    assert peak < 2**20


def test_arrays_that_inflate_to_more_than_the_header_says_are_cut_off():
    data = sealed(GOOD | {"columns": {"x": ["<f8", [1]]}}, bytes(2**26))
    peak, _ = peak_of(lambda: unpack(data))
    assert peak < 2**20


@pytest.mark.parametrize("item", [b"[]", b"{}", b'""', b"0.5"])
def test_header_of_empty_values_is_not_parsed(item):
    """Three bytes of JSON are 72 of memory."""
    data = sealed(b'{"workloads":[' + b",".join([item] * 4_000_000) + b"]}")
    peak, why = peak_of(lambda: unpack(data))
    assert "bytes; more than 11184810 are not taken" in why
    assert peak < 2**20


def test_a_byte_that_is_no_boolean_is_still_true_or_false():
    header = GOOD | {"columns": {"x": ["|b1", [1, 3]]}}
    assert unpack(sealed(header, b"\x00\x01\x07")).columns["x"].tolist() == [[False, True, True]]


def test_big_endian_arrays_are_written_as_everybody_reads_them():
    state = State(1.0, (WorkloadKey("ai", "chat"),), {"x": np.array([5.0], dtype=">f8")})
    assert unpack(pack(state)).columns["x"].tolist() == [5.0]


def test_an_array_of_objects_is_its_writers_mistake():
    with pytest.raises(ValueError, match="x: a state has no arrays of object"):
        pack(State(1.0, (WorkloadKey("ai", "chat"),), {"x": np.array([None])}))
