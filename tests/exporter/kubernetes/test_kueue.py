"""What a queue of Kueue can admit, by the arithmetic of its own scheduler, from objects of both versions of its API."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kubernetes.decode import Malformed, decode
from exporter.kubernetes.kueue import available, quotas_of
from exporter.kubernetes.objects import ClusterQueue, Cohort, FlavorQuota, LocalQueue, Ref, ResourceFlavor

GPU = "nvidia.com/gpu"


def queue(name, nominal, reserved=0, *, borrowing=None, lending=None, cohort="c", **more):
    quota = FlavorQuota(nominal, borrowing, lending, reserved)
    return ClusterQueue(Ref("", "ClusterQueue", name), {GPU: {"default": quota}}, cohort, **more)


def cohort(name, above="", nominal=None, *, borrowing=None, lending=None):
    flavors = {} if nominal is None else {GPU: {"default": FlavorQuota(nominal, borrowing, lending, 0)}}
    return Cohort(Ref("", "Cohort", name), flavors, above)


def admits(mine, *others):
    return available(quotas_of((mine, *others)), mine, GPU, "default")


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


@pytest.mark.parametrize(
    ("cohorts", "expected"),
    [
        ([cohort("c", nominal=3)], 9),  # 16 - 10 of the queues, and its own
        ([cohort("c", "root")], 6),  # a cohort that is only named has nothing
        ([cohort("c", "root"), cohort("root", nominal=4)], 10),
        ([cohort("c", "root", 0, borrowing=3), cohort("root", nominal=4)], 9),
        ([cohort("c", "root", 0, lending=2), cohort("root", nominal=4)], 10),
        ([cohort("c", "root"), cohort("d", "root", 8), cohort("root")], 14),
        ([cohort("c", "root"), cohort("d", "root", 8, lending=5), cohort("root")], 11),
    ],
)
def test_queue_borrows_through_the_cohorts_above_its_own(cohorts, expected):
    assert admits(queue("a", 8, 6), queue("b", 8, 4), *cohorts) == expected


def test_what_another_branch_has_borrowed_is_gone():
    others = queue("b", 2, 9, cohort="d"), cohort("c", "root"), cohort("d", "root"), cohort("root", nominal=4)
    assert admits(queue("a", 8, 6), *others) == 8 + 4 + 2 - 6 - 9


def test_cohorts_in_a_circle_limit_only_by_the_borrowing_limit():
    circle = cohort("c", "d"), cohort("d", "c")
    assert admits(queue("a", 8, 6), *circle) is None
    assert admits(queue("a", 8, 6, borrowing=3), *circle) == 5


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


limits = st.none() | st.integers(0, 9)


@st.composite
def trees(draw):
    """Queues and cohorts below `root`, none with more than its nominal quota in use: the first queue is the tested."""
    names = ["root", *(f"c{number}" for number in range(draw(st.integers(0, 3))))]
    cohorts = [
        cohort(
            name,
            draw(st.sampled_from(names[:place])),
            draw(st.integers(0, 9)),
            borrowing=draw(limits),
            lending=draw(limits),
        )
        for place, name in enumerate(names)
        if place
    ]
    queues = [
        queue(f"q{number}", nominal, draw(st.integers(0, nominal)), cohort=draw(st.sampled_from(names)), **more)
        for number in range(draw(st.integers(1, 4)))
        for nominal in (draw(st.integers(0, 9)),)
        for more in ({"borrowing": draw(limits), "lending": draw(limits)},)
    ]
    return [*queues, *cohorts, cohort("root", nominal=draw(st.integers(0, 9)))]


def reserving(mine, gpus):
    ((quota,),) = (each.values() for each in mine.flavors.values())
    return ClusterQueue(mine.ref, {GPU: {"default": quota._replace(reserved=quota.reserved + gpus)}}, mine.cohort)


@settings(max_examples=150, deadline=None)
@given(trees())
def test_tree_hands_out_no_more_than_it_has_and_each_gpu_once(tree):
    mine, *others = tree
    found = admits(mine, *others)
    (own,) = mine.flavors[GPU].values()
    quotas = [quota for each in tree for quota in each.flavors.get(GPU, {}).values()]
    assert own.nominal - own.reserved <= found <= sum(quota.nominal - quota.reserved for quota in quotas)
    assert admits(reserving(mine, found), *others) == 0
    assert admits(reserving(mine, found // 2), *others) == found - found // 2


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
    above = {
        "parent" if v1beta1 else "parentName": "root",
        "resourceGroups": document()["spec"]["resourceGroups"],
    }
    child, alone = (decode(Ref("", "Cohort", name), {"spec": spec}) for name, spec in (("d", above), ("c", {})))
    assert child == Cohort(Ref("", "Cohort", "d"), {GPU: {"l4": FlavorQuota(8, 2, 0, 0)}}, "root")
    assert local == LocalQueue(Ref("ai", "LocalQueue", "main"), "gpus")
    assert (flavor.model, plain) == ("NVIDIA-L4", ResourceFlavor(Ref("", "ResourceFlavor", "any"), None))
    found = quotas_of([main, local, flavor, plain, child, alone])
    assert (found.queues, found.local, found.models) == (
        {"gpus": main},
        {("ai", "main"): "gpus"},
        {"l4": "NVIDIA-L4"},
    )
    assert (found.cohorts, found.members) == ({"d": child, "c": alone}, {"c": (main,), "root": (child,)})


def test_malformed_queue_is_an_error_of_its_own():
    bad = document()
    bad["spec"]["resourceGroups"][0]["flavors"][0]["resources"][1]["nominalQuota"] = "many"
    with pytest.raises(Malformed, match="nominalQuota"):
        decode(Ref("", "ClusterQueue", "gpus"), bad)
