"""Leader election: at most one replica leads, and another one takes over soon, although their clocks differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.leases import Lease
from scaler.ha.election import Election, Terms, confirm, holds, leader, leads, observe, propose, propose_release

TERMS = Terms(lease_s=15.0, renew_s=10.0, retry_s=2.0)


def candidate(name):
    return Election(name, f"{name}:8444", TERMS)


def write_lease(election, now, delay_s=0.0):
    """The candidate writes its proposed Lease, and the API accepts it."""
    proposed = propose(election, now, delay_s)
    assert proposed is not None
    return confirm(election, proposed._replace(version=f"after {proposed.version}"), now, now)


def test_replica_creates_a_missing_lease_and_leads_at_once():
    a = observe(candidate("a"), None, 100.0)
    assert propose(a, 100.0) == Lease("a", "a:8444", 15.0, 100.0, 100.0, 0, "")
    a = write_lease(a, 100.0)
    assert (holds(a), leads(a, 100.0), leader(a)) == (True, True, None)


def test_held_lease_is_taken_only_after_its_duration_without_a_change():
    b = observe(candidate("b"), Lease("a", "a:8444", 15.0, 1.0, 1.0, 3, "7"), 100.0)
    assert [propose(b, now) for now in (100.0, 114.9)] == [None, None]
    assert leader(b).address == "a:8444"
    assert propose(b, 115.0) == Lease("b", "b:8444", 15.0, 115.0, 115.0, 4, "7")


def test_renewal_counts_from_when_it_is_read_whatever_its_timestamp():
    # The holder's clock is a year behind: its times mean nothing, their change does.
    b, at = candidate("b"), 1e9
    for renewal in range(20):
        at = 1e9 + 5.0 * renewal
        b = observe(b, Lease("a", "a:8444", 15.0, 1.0, 1.0 + renewal, 0, str(renewal)), at)
        assert propose(b, at + 14.9) is None
    assert propose(b, at + 15.0).holder == "b"


def test_label_on_a_lease_is_no_renewal():
    a = Lease("a", "a:8444", 15.0, 1.0, 1.0, 0, "7")
    b = observe(observe(candidate("b"), a, 100.0), a._replace(version="8"), 110.0)
    assert propose(b, 115.0).version == "8"


def test_holder_without_renewal_stops_leading_before_another_may_lead():
    a = write_lease(observe(candidate("a"), None, 100.0), 100.0)
    assert [leads(a, now) for now in (100.0, 109.9, 110.0)] == [True, True, False]
    assert TERMS.renew_s < TERMS.lease_s


def test_leader_that_followers_poll_continues_to_lead():
    a = write_lease(observe(candidate("a"), None, 100.0), 100.0)
    assert leads(a, 400.0, followed_at=398.0, followed_s=3.0)
    assert not leads(a, 401.0, followed_at=398.0, followed_s=3.0)


def test_leader_that_reads_another_holder_stops_leading_although_followers_poll():
    a = write_lease(observe(candidate("a"), None, 100.0), 100.0)
    a = observe(a, Lease("b", "b:8444", 15.0, 1.0, 1.0, 1, "9"), 101.0)
    assert not leads(a, 101.0, followed_at=101.0, followed_s=3.0)


def test_released_lease_is_taken_at_once():
    a = write_lease(observe(candidate("a"), None, 100.0), 100.0)
    b = observe(candidate("b"), propose_release(a, 101.0), 101.5)
    assert leader(b) is None
    assert propose(b, 101.5).transitions == 1
    assert propose_release(b, 101.5) is None


def test_replica_without_state_lets_others_take_a_free_lease_first():
    expired = observe(candidate("b"), Lease("a", "a:8444", 15.0, 1.0, 1.0, 0, "7"), 100.0)
    assert propose(expired, 115.0, delay_s=15.0) is None
    assert propose(expired, 130.0, delay_s=15.0).holder == "b"
    free = observe(candidate("b"), Lease("", "", 1.0, 1.0, 1.0, 0, "7"), 100.0)
    assert propose(free, 114.0, delay_s=15.0) is None
    assert propose(free, 115.0, delay_s=15.0).holder == "b"


def test_holder_without_an_address_is_not_followed():
    b = observe(candidate("b"), Lease("a", "", 15.0, 1.0, 1.0, 0, "7"), 100.0)
    assert leader(b) is None


def test_restarted_process_of_the_same_pod_does_not_inherit_the_lease():
    mine_before = Lease("tidegate-0_1f", "10.0.0.7:8444", 15.0, 1.0, 1.0, 0, "7")
    again = observe(candidate("tidegate-0_2e"), mine_before, 100.0)
    assert (holds(again), propose(again, 114.0)) == (False, None)


class Api:
    """Holds the Lease. A write succeeds if it has the current version."""

    def __init__(self):
        self.lease, self._versions = None, 0

    def write(self, lease):
        if lease.version != (self.lease.version if self.lease else ""):
            return None
        self._versions += 1
        self.lease = lease._replace(version=str(self._versions))
        return self.lease


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # index of the replica
        st.floats(0.1, 8.0),  # seconds that pass before
        st.sampled_from(["reads", "writes", "writes and gets no response"]),
    ),
    max_size=60,
)


@given(EVENTS, st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_there_is_never_more_than_one_leader_whatever_the_clocks(events, skews):
    api, now = Api(), 1e7
    replicas = [candidate(name) for name in "abc"]
    for index, passed, does in events:
        now += passed
        local = now + skews[index]
        if does == "reads":
            replicas[index] = observe(replicas[index], api.lease, local)
        else:
            proposed = propose(replicas[index], local)
            written = api.write(proposed) if proposed is not None else None
            if written is not None and does == "writes":
                replicas[index] = confirm(replicas[index], written, local, local)
        leading = [each.me for each, skew in zip(replicas, skews, strict=True) if leads(each, now + skew)]
        assert len(leading) <= 1


@pytest.mark.parametrize("skew", [-300.0, 0.0, 300.0])
def test_another_replica_leads_within_lease_and_retry_after_a_failure(skew):
    api, now = Api(), 1e7
    a, b = candidate("a"), candidate("b")
    a = confirm(a, api.write(propose(observe(a, None, now), now)), now, now)
    lost, now = now, now + 0.5
    while not leads(b, now + skew):
        b = observe(b, api.lease, now + skew)
        if (proposed := propose(b, now + skew)) is not None:
            b = confirm(b, api.write(proposed), now + skew, now + skew)
        else:
            now += TERMS.retry_s
    assert TERMS.lease_s <= now - lost <= TERMS.lease_s + TERMS.retry_s + 0.5
    assert not leads(a, now)
