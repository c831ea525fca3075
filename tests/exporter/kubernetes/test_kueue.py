"""What a queue of Kueue can admit, by the arithmetic of its own scheduler, from objects of both versions of its API."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kubernetes.decode import Malformed, decode
from exporter.kubernetes.kueue import KueueQuotas, available, quotas_of
from exporter.kubernetes.objects import ClusterQueue, FlavorQuota, Ref

GPU = "nvidia.com/gpu"


def queue(name, nominal, reserved=0, *, borrowing=None, lending=None, cohort="c", **more):
    quota = FlavorQuota(nominal, borrowing, lending, reserved)
    return ClusterQueue(Ref("", "ClusterQueue", name), {GPU: {"default": quota}}, cohort, **more)


def admits(mine, *mates, hierarchic=()):
    queues = {each.ref.name: each for each in (mine, *mates)}
    return available(KueueQuotas(queues, hierarchic=frozenset(hierarchic)), mine, GPU, "default")


def test_queue_alone_admits_its_nominal_quota():
    assert admits(queue("a", 8, 6, cohort="")) == 2
    assert admits(queue("a", 4, 6, cohort="")) == -2  # the quota was lowered
    assert admits(queue("a", 8, 6, cohort="", stopped=True)) == 0


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        (queue("a", 8, 6), queue("b", 8, 4), 6),
        (queue("a", 8, 6, borrowing=1), queue("b", 8, 4), 3),
        (queue("a", 8, 6), queue("b", 8, 4, lending=2), 4),
        (queue("a", 8, 6), queue("b", 8, 12), -2),  # b has borrowed what a needs
        (queue("a", 8, 6, reclaims=True), queue("b", 8, 12), 2),
        (queue("a", 8, 6, lending=0), queue("b", 8, 12), -2),
        (queue("a", 8, 6, lending=2), queue("b", 8, 8), 2),
        (queue("a", 8, 6), queue("b", 8, 0, cohort="other"), 2),
    ],
)
def test_queue_of_a_cohort_borrows_what_others_lend(mine, other, expected):
    assert admits(mine, other) == expected


def test_cohort_with_quotas_of_its_own_limits_only_by_the_borrowing_limit():
    assert admits(queue("a", 8, 6), hierarchic=["c"]) is None
    assert admits(queue("a", 8, 6, borrowing=3), hierarchic=["c"]) == 5


quotas = st.builds(
    queue,
    st.just("a"),
    st.integers(0, 9),
    st.integers(0, 9),
    borrowing=st.none() | st.integers(0, 9),
    lending=st.none() | st.integers(0, 9),
)


@settings(max_examples=150, deadline=None)
@given(quotas, quotas)
def test_queues_without_debts_get_no_more_than_the_cohort_has_and_no_less_than_is_theirs(mine, other):
    (own,), (its,) = mine.flavors[GPU].values(), other.flavors[GPU].values()
    other = ClusterQueue(Ref("", "ClusterQueue", "b"), other.flavors, "c")
    found = admits(mine, other)
    if own.reserved <= own.nominal and its.reserved <= its.nominal:
        assert own.nominal - own.reserved <= found <= own.nominal + its.nominal - own.reserved - its.reserved
    if own.borrowing is not None:
        assert found <= max(own.nominal - own.reserved + own.borrowing, 0) or own.reserved > own.nominal


def document(*, v1beta1=False):
    quota = {"name": GPU, "nominalQuota": "8", "borrowingLimit": "2", "lendingLimit": "0"}
    flavors = [{"name": "l4", "resources": [{"name": "cpu", "nominalQuota": "64"}, quota]}]
    used = [{"name": "l4", "resources": [{"name": "cpu", "total": "3500m"}, {"name": GPU, "total": "5"}]}]
    return {
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu", GPU], "flavors": flavors}],
            "cohort" if v1beta1 else "cohortName": "c",
            "preemption": {"reclaimWithinCohort": "Any"},
            "stopPolicy": "None",
        },
        "status": {"flavorsReservation": used, "pendingWorkloads": 0},
    }


@pytest.mark.parametrize("v1beta1", [False, True])
def test_objects_of_both_versions_are_decoded(v1beta1):
    ref = Ref("", "ClusterQueue", "gpus")
    main = decode(ref, document(v1beta1=v1beta1))
    assert main == ClusterQueue(ref, {GPU: {"l4": FlavorQuota(8, 2, 0, 5)}}, "c", reclaims=True)
    local = decode(Ref("ai", "LocalQueue", "main"), {"spec": {"clusterQueue": "gpus"}})
    labels = {"spec": {"nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-L4", "zone": "a"}}}
    flavor, plain = (
        decode(Ref("", "ResourceFlavor", name), spec) for name, spec in (("l4", labels), ("any", {"spec": {}}))
    )
    cohort, alone = (
        decode(Ref("", "Cohort", name), spec)
        for name, spec in (("d", {"spec": {"parentName": "root"}}), ("c", {"spec": {}}))
    )
    found = quotas_of([main, local, flavor, plain, cohort, alone])
    assert found == KueueQuotas({"gpus": main}, {("ai", "main"): "gpus"}, {"l4": "NVIDIA-L4"}, frozenset({"d"}))


def test_malformed_queue_is_an_error_of_its_own():
    bad = document()
    bad["spec"]["resourceGroups"][0]["flavors"][0]["resources"][1]["nominalQuota"] = "many"
    with pytest.raises(Malformed, match="nominalQuota"):
        decode(Ref("", "ClusterQueue", "gpus"), bad)
