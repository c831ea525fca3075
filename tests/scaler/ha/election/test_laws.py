"""One leader at the most, and soon one again: the rules of an election, on clocks that differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.leases import Lease
from scaler.ha.election import Election, Terms, bid, given_back, holds, leader, leads, observed, won

TERMS = Terms(lease_s=15.0, renew_s=10.0, retry_s=2.0)


def candidate(name):
    return Election(name, f"{name}:8444", TERMS)


def writes(election, now, patience_s=0.0):
    """It writes what it wants, and the API takes it."""
    wanted = bid(election, now, patience_s)
    assert wanted is not None
    return won(election, wanted._replace(version=f"after {wanted.version}"), now, now)


def test_where_there_is_no_lease_one_makes_it_and_leads_at_once():
    a = observed(candidate("a"), None, 100.0)
    assert bid(a, 100.0) == Lease("a", "a:8444", 15.0, 100.0, 100.0, 0, "")
    a = writes(a, 100.0)
    assert (holds(a), leads(a, 100.0), leader(a)) == (True, True, None)


def test_what_another_holds_is_left_alone_until_it_has_not_changed_for_its_time():
    b = observed(candidate("b"), Lease("a", "a:8444", 15.0, 1.0, 1.0, 3, "7"), 100.0)
    assert [bid(b, now) for now in (100.0, 114.9)] == [None, None]
    assert leader(b).address == "a:8444"
    assert bid(b, 115.0) == Lease("b", "b:8444", 15.0, 115.0, 115.0, 4, "7")


def test_each_renewal_counts_from_when_it_was_seen_whatever_time_it_says():
    # The holder's clock is a year behind: its times mean nothing, their change does.
    b, at = candidate("b"), 1e9
    for renewal in range(20):
        at = 1e9 + 5.0 * renewal
        b = observed(b, Lease("a", "a:8444", 15.0, 1.0, 1.0 + renewal, 0, str(renewal)), at)
        assert bid(b, at + 14.9) is None
    assert bid(b, at + 15.0).holder == "b"


def test_a_lease_that_somebody_labelled_has_not_been_renewed():
    a = Lease("a", "a:8444", 15.0, 1.0, 1.0, 0, "7")
    b = observed(observed(candidate("b"), a, 100.0), a._replace(version="8"), 110.0)
    assert bid(b, 115.0).version == "8"


def test_who_could_not_renew_leads_no_more_before_anybody_else_may():
    a = writes(observed(candidate("a"), None, 100.0), 100.0)
    assert [leads(a, now) for now in (100.0, 109.9, 110.0)] == [True, True, False]
    assert TERMS.renew_s < TERMS.lease_s


def test_a_leader_that_the_others_go_on_asking_goes_on():
    a = writes(observed(candidate("a"), None, 100.0), 100.0)
    assert leads(a, 400.0, followed_at=398.0, followed_s=3.0)
    assert not leads(a, 401.0, followed_at=398.0, followed_s=3.0)


def test_a_leader_that_reads_of_another_leads_no_more_whoever_asks_it():
    a = writes(observed(candidate("a"), None, 100.0), 100.0)
    a = observed(a, Lease("b", "b:8444", 15.0, 1.0, 1.0, 1, "9"), 101.0)
    assert not leads(a, 101.0, followed_at=101.0, followed_s=3.0)


def test_what_is_given_back_another_takes_at_once():
    a = writes(observed(candidate("a"), None, 100.0), 100.0)
    b = observed(candidate("b"), given_back(a, 101.0), 101.5)
    assert leader(b) is None
    assert bid(b, 101.5).transitions == 1
    assert given_back(b, 101.5) is None


def test_who_remembers_nothing_lets_others_go_first():
    expired = observed(candidate("b"), Lease("a", "a:8444", 15.0, 1.0, 1.0, 0, "7"), 100.0)
    assert bid(expired, 115.0, patience_s=15.0) is None
    assert bid(expired, 130.0, patience_s=15.0).holder == "b"
    free = observed(candidate("b"), Lease("", "", 1.0, 1.0, 1.0, 0, "7"), 100.0)
    assert bid(free, 114.0, patience_s=15.0) is None
    assert bid(free, 115.0, patience_s=15.0).holder == "b"


def test_a_holder_that_does_not_say_where_it_is_cannot_be_asked():
    b = observed(candidate("b"), Lease("a", "", 15.0, 1.0, 1.0, 0, "7"), 100.0)
    assert leader(b) is None


def test_a_process_that_starts_again_in_the_same_pod_is_another():
    mine_before = Lease("tidegate-0_1f", "10.0.0.7:8444", 15.0, 1.0, 1.0, 0, "7")
    again = observed(candidate("tidegate-0_2e"), mine_before, 100.0)
    assert (holds(again), bid(again, 114.0)) == (False, None)


class Api:
    """The Lease, and who may write it: whoever names the version that it has."""

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
        st.integers(0, 2),  # whose turn it is
        st.floats(0.1, 8.0),  # seconds that pass before
        st.sampled_from(["reads", "writes", "writes and does not hear of it"]),
    ),
    max_size=60,
)


@given(EVENTS, st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_there_is_never_more_than_one_leader_whatever_their_clocks_say(events, skews):
    api, now = Api(), 1e7
    replicas = [candidate(name) for name in "abc"]
    for who, passed, does in events:
        now += passed
        own = now + skews[who]
        if does == "reads":
            replicas[who] = observed(replicas[who], api.lease, own)
        else:
            wanted = bid(replicas[who], own)
            taken = api.write(wanted) if wanted is not None else None
            if taken is not None and does == "writes":
                replicas[who] = won(replicas[who], taken, own, own)
        leading = [each.me for each, skew in zip(replicas, skews, strict=True) if leads(each, now + skew)]
        assert len(leading) <= 1


@pytest.mark.parametrize("skew", [-300.0, 0.0, 300.0])
def test_after_the_leader_is_lost_another_leads_within_a_lease_and_a_retry(skew):
    api, now = Api(), 1e7
    a, b = candidate("a"), candidate("b")
    a = won(a, api.write(bid(observed(a, None, now), now)), now, now)
    lost, now = now, now + 0.5
    while not leads(b, now + skew):
        b = observed(b, api.lease, now + skew)
        if (wanted := bid(b, now + skew)) is not None:
            b = won(b, api.write(wanted), now + skew, now + skew)
        else:
            now += TERMS.retry_s
    assert TERMS.lease_s <= now - lost <= TERMS.lease_s + TERMS.retry_s + 0.5
    assert not leads(a, now)
