"""After a restart, a workload has rested only if no counter of its targets says otherwise."""

import numpy as np
import pytest

from exporter.model import Role, Target, WorkloadKey
from scaler.columns import ROW
from scaler.signals.restart_proof import RestartProof, key_table, keys_of, page_key, page_table
from scaler.signals.slots import ACTIVITY, Slots

WIDTH, NAN = len(ACTIVITY), np.nan
CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")
BOTH = np.array([0, 1])


def key(n, workload=CHAT):
    return page_key(Target(f"http://10.0.0.{n}:8000/metrics", "vllm", Role.PODS, workload), workload)


def slots_of(*targets):
    """A slot for each (workload's row, number, counters)."""
    slots = Slots.empty(len(targets))
    for slot, (row, n, counters) in enumerate(targets):
        slots.owner[slot], slots.key[slot], slots.counters[slot] = row, key(n), counters
    return slots


def before():
    """Two targets of row 0, one of row 1, and one without a counter."""
    return slots_of((0, 1, [10, 0, 500, NAN]), (0, 2, [7, 0, 90, 90]), (1, 3, [5, 5, 5, 5]), (1, 4, [NAN] * WIDTH))


def expecting(rows=BOTH, source_rows=BOTH):
    proof = RestartProof(2)
    proof.expect(page_table(before(), 0, 2), WIDTH, rows, source_rows)
    return proof


def answer(proof, row, n, counters, slots=None):
    """Whether a first response is no activity, and the counters from which its slot goes on."""
    slots = slots or slots_of((row, n, [NAN] * WIDTH))
    return proof.meet(slots, 0, np.array(counters, dtype=float)), slots.counters[0].tolist()


def test_workload_has_rested_once_every_target_with_a_counter_has_answered():
    proof = expecting()
    assert [proof.pending(0), proof.pending(1)] == [True, True]
    assert proof.rested(BOTH).tolist() == [False, False]
    answer(proof, 0, 1, [10, 0, 500, NAN])
    assert proof.rested(BOTH).tolist() == [False, False]
    answer(proof, 0, 2, [7, 0, 90, 90])
    assert proof.rested(BOTH).tolist() == [True, False]
    answer(proof, 1, 3, [5, 5, 5, 5])
    assert proof.rested(BOTH).tolist() == [True, True]


@pytest.mark.parametrize(("counters", "same"), [
    ([10, 0, 500, NAN], True),
    ([12, 0, 500, NAN], True),  # what rose is counted from the counters before
    ([10, 0, 500, 3], True),
    ([9, 0, 500, NAN], False),  # it has restarted, and served before
    ([10, 0, 499, NAN], False),
    ([NAN, 0, 500, NAN], False),
])  # fmt: skip
def test_slot_goes_on_from_the_counters_of_the_checkpoint_unless_one_fell(counters, same):
    known = before().counters[0].tolist()
    found, goes_on = answer(expecting(), 0, 1, counters)
    assert found is same
    np.testing.assert_array_equal(goes_on, known if same else [NAN] * WIDTH)


@pytest.mark.parametrize(("counters", "idle"), [([0, 0, 0, NAN], True), ([0, 0, 1, NAN], False)])
def test_target_that_is_new_has_served_nothing_if_its_counters_are_zero(counters, idle):
    proof = expecting()
    assert answer(proof, 0, 9, counters)[0] is idle
    assert not proof.rested(BOTH).any()


def test_second_response_of_a_target_proves_nothing_more():
    proof = expecting()
    assert answer(proof, 0, 1, [3, 0, 1, 0], slots_of((0, 1, [10, 0, 500, NAN]))) == (True, pytest.approx(
        [10, 0, 500, NAN], nan_ok=True
    ))  # fmt: skip
    answer(proof, 0, 2, [7, 0, 90, 90])
    assert proof.rested(BOTH).tolist() == [False, False]


def test_rows_of_a_checkpoint_are_those_of_its_workloads():
    assert page_table(before(), 0, 1)[ROW].tolist() == [0, 0]
    table = page_table(before(), 1, 2)
    assert table[ROW].tolist() == [0]
    proof = RestartProof(2)
    proof.expect(table, WIDTH, np.array([1]), np.array([0]))
    assert [proof.pending(0), proof.pending(1)] == [False, True]
    swapped = expecting(BOTH, BOTH[::-1])
    answer(swapped, 0, 3, [5, 5, 5, 5])
    assert swapped.rested(BOTH).tolist() == [True, False]


def test_new_list_of_workloads_goes_on_waiting_for_those_that_it_has():
    old, new = expecting(), RestartProof(1)
    new.adopt(old, np.array([0]), np.array([1]))
    assert not new.rested(np.array([0])).any()
    assert answer(new, 0, 1, [10, 0, 500, NAN])[0] is False, "that of a workload that is gone"
    assert answer(new, 0, 3, [5, 5, 5, 5])[0] is True
    assert new.rested(np.array([0])).tolist() == [True]


def test_proof_of_one_workload_is_given_up_alone():
    proof = expecting()
    proof.give_up(np.array([0]))
    assert [proof.pending(0), proof.pending(1)] == [False, True]
    assert answer(proof, 0, 1, [10, 0, 500, NAN])[0] is False
    assert answer(proof, 1, 3, [5, 5, 5, 5])[0] is True
    assert proof.rested(BOTH).tolist() == [False, True]


def test_next_checkpoint_after_a_proof_that_was_given_up_can_prove_it():
    proof = expecting()
    proof.give_up(BOTH)
    proof.expect(page_table(before(), 0, 2), WIDTH, BOTH, BOTH)
    answer(proof, 1, 3, [5, 5, 5, 5])
    assert proof.rested(BOTH).tolist() == [False, True]


@pytest.mark.parametrize("change", [
    {"key": np.zeros((3, 9), dtype=np.uint8)},
    {"key": np.zeros((3, 16), dtype=np.int64)},
    {"counters": np.zeros((3, WIDTH + 1))},
    {"counters": np.zeros((3, WIDTH), dtype=np.int64)},
])  # fmt: skip
def test_malformed_table_proves_nothing(change):
    proof = RestartProof(2)
    for table in ({}, {**page_table(before(), 0, 2), **change}):
        proof.expect(table, WIDTH, BOTH, BOTH)
        assert [proof.pending(0), proof.pending(1)] == [False, False]


def test_negative_counter_of_a_checkpoint_is_unknown():
    slots, proof = slots_of((0, 1, [-1, -1, -1, -1]), (1, 3, [-1, 5, 5, 5])), RestartProof(2)
    proof.expect(page_table(slots, 0, 2), WIDTH, BOTH, BOTH)
    assert [proof.pending(0), proof.pending(1)] == [False, True]
    np.testing.assert_array_equal(answer(proof, 1, 3, [0, 5, 5, 5])[1], [NAN, 5, 5, 5])


def test_keys_return_to_their_workloads():
    keys = [key(n).tobytes() for n in range(3)]
    table = key_table([(0, keys[0]), (1, keys[1]), (1, keys[2])])
    rows, found = keys_of(table, np.array([4]), np.array([1]))
    assert (rows.tolist(), found) == ([4, 4], keys[1:])
    for malformed in ({}, {**table, "key": table["key"].astype(np.int64)}, {**table, "key": table["key"][:, :9]}):
        rows, found = keys_of(malformed, BOTH, BOTH)
        assert (rows.tolist(), found) == ([], [])


def test_key_of_a_target_is_that_of_its_workload_and_without_its_password():
    target = Target("http://user:secret@10.0.0.1:8000/metrics", "vllm", Role.PODS, CHAT)
    assert page_key(target, CHAT).tobytes() == key(1).tobytes() != key(1, CODE).tobytes() != key(2).tobytes()
