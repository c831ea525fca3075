"""The GPUs that workloads share: kinds in the order of their price, what is free, and which workloads take part."""

from math import nan

import numpy as np

from exporter.kubernetes.gpu_use import ClusterGpus, GpuKind, TargetGpus
from exporter.kubernetes.kueue import NO_QUEUES, QUEUE_LABEL, KueueQuotas
from exporter.kubernetes.objects import ClusterQueue, FlavorQuota, GpuQuota, Ref, Scalable
from exporter.kubernetes.placement import NO_TRAITS, PodTraits, QuotaScope, Taint, Toleration
from scaler.engine.sharing import free_gpus
from scaler.policy.sharing import NONE
from scaler.workloads.gpu_supply import GpuRequest, request_of, supply

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
H100, L4, ANY = GpuKind(GPU, "H100"), GpuKind(GPU, "L4"), GpuKind(GPU)
CHAT, BATCH = Ref("ai", "Deployment", "chat"), Ref("ai", "Deployment", "batch")
PRICES = {"H100": 6.9, "L4": 0.8}
KINDS = [ANY, H100, L4]  # in the order of columns


def use(allocatable, used=None, by_target=None, waiting=None, quotas=(), requested=None, kueue=NO_QUEUES):
    return ClusterGpus(allocatable, used or {}, waiting or {}, by_target or {}, quotas, requested or {}, kueue)


def holding(*, traits=NO_TRAITS, **held):
    kinds = {GpuKind(GPU, model): many for model, many in held.items()}
    return TargetGpus(held=kinds, staying=kinds, requested={(GPU, traits): sum(held.values())})


def supplied(found, *requests, growth=None, targets=(CHAT, BATCH)):
    return supply(found, targets[: len(requests)], requests, growth or {}, lambda model: PRICES.get(model, nan))


def kinds_of(columns, row):
    return [KINDS[kind] for kind in columns.kinds[row] if kind != NONE]


def test_workload_without_a_model_takes_the_cheapest_kind_first_and_a_pending_pod_last():
    found = supplied(use({H100: 4, L4: 8}), GpuRequest(GPU, 1, None), GpuRequest(GPU, 2, "H100"))
    assert kinds_of(found, 0) == [L4, H100, ANY]
    assert kinds_of(found, 1) == [H100, ANY]
    assert (found.room.tolist(), found.gpus.tolist()) == ([0, 4, 8], [1, 2])


def test_workload_whose_pods_run_stays_on_their_kinds():
    found = supplied(use({H100: 4, L4: 8}, {H100: 1}, {CHAT: holding(H100=1)}), GpuRequest(GPU, 1, None))
    assert kinds_of(found, 0) == [H100, ANY]


def test_unknown_price_is_the_dearest():
    odd = GpuKind(GPU, "odd")
    found = supply(
        use({odd: 1, H100: 1}), [CHAT], [GpuRequest(GPU, 1, None)], {}, lambda m: 6.9 if m == "H100" else nan
    )
    assert found.kinds[0].tolist() == [1, 2, 0]


def test_gpus_of_a_workload_that_takes_no_part_are_used_and_those_of_the_others_free():
    found = supplied(
        use({L4: 8}, {L4: 6}, {CHAT: holding(L4=3), BATCH: holding(L4=2)}),
        GpuRequest(GPU, 1, None),
        GpuRequest(GPU, 1, None),
    )
    assert free_gpus(found, np.array([True, True])).tolist() == [0, 7]  # one is of another pod
    assert free_gpus(found, np.array([True, False])).tolist() == [0, 5]


def test_pods_of_others_that_wait_for_the_scheduler_take_the_kind_with_most_room():
    found = supplied(use({H100: 4, L4: 8}, waiting={GPU: 5}), GpuRequest(GPU, 1, None))
    assert free_gpus(found, np.array([True])).tolist() == [0, 4, 3]
    mine = TargetGpus(waiting={GPU: 5})
    own = supplied(use({H100: 4, L4: 8}, waiting={GPU: 5}, by_target={CHAT: mine}), GpuRequest(GPU, 1, None))
    assert free_gpus(own, np.array([True])).tolist() == [0, 4, 8]


def test_growth_is_of_the_kind_without_a_model():
    found = supplied(use({L4: 8}), GpuRequest(GPU, 1, "L4"), growth={GPU: 16})
    assert found.growth.tolist() == [16, 0]


def quotas_of(found, row):
    """For each pool of a workload: what is left in it, and what the workload has of it."""
    pairs = zip(found.quota[row].tolist(), found.requested[row].tolist(), strict=True)
    return [(found.quotas[pool], own) for pool, own in pairs if pool != NONE]


def quota(gpus, name="q", namespace="ai", scopes=()):
    return GpuQuota(Ref(namespace, "ResourceQuota", name), {GPU: gpus}, scopes)


def test_quota_of_the_namespace_is_what_other_pods_leave():
    found = supplied(
        use(
            {L4: 8},
            {L4: 3},
            {CHAT: holding(L4=2)},
            quotas=(quota(5), quota(1, namespace="other")),
            requested={("ai", GPU, NO_TRAITS): 3},
        ),
        GpuRequest(GPU, 1, None),
    )
    assert quotas_of(found, 0) == [(2, 2)]


def test_quota_with_scopes_counts_and_limits_only_pods_that_match():
    low, high = PodTraits(priority_class="low"), PodTraits(priority_class="high")
    count = use(
        {L4: 8},
        {L4: 5},
        {CHAT: holding(L4=2, traits=low)},
        quotas=(quota(4, scopes=(QuotaScope("PriorityClass", "In", ("low",)),)), quota(9, "r")),
        requested={("ai", GPU, low): 3, ("ai", GPU, high): 2},
    )
    found = supplied(count, GpuRequest(GPU, 1, None, traits=low), GpuRequest(GPU, 1, None, traits=high))
    assert quotas_of(found, 0) == [(1, 2), (4, 2)]
    assert quotas_of(found, 1) == [(4, 0)]


def test_template_without_a_priority_class_has_that_of_its_pods():
    """The API server gives them the default class when they are created."""
    low = PodTraits(priority_class="low")
    scoped = quota(4, scopes=(QuotaScope("PriorityClass", "In", ("low",)),))
    found = supplied(
        use({L4: 8}, {L4: 2}, {CHAT: holding(L4=2, traits=low)}, quotas=(scoped,), requested={("ai", GPU, low): 2}),
        GpuRequest(GPU, 1, None),
        GpuRequest(GPU, 1, None),
    )
    assert (quotas_of(found, 0), quotas_of(found, 1)) == ([(2, 2)], [])


TAINT = Taint("team", "a", "NoSchedule")
TAINTED = GpuKind(GPU, "H100", (TAINT,))


def test_gpus_of_a_tainted_node_count_for_pods_that_tolerate_it():
    tolerant = PodTraits((Toleration("team", "Exists", "", ""),))
    count = use({TAINTED: 8, L4: 4}, {L4: 1}, {BATCH: holding(L4=1, traits=NO_TRAITS)})
    found = supplied(count, GpuRequest(GPU, 1, None, traits=tolerant), GpuRequest(GPU, 1, None))
    kinds = [ANY, TAINTED, L4]
    assert [[kinds[kind] for kind in row if kind != NONE] for row in found.kinds.tolist()] == [
        [L4, TAINTED, ANY],
        [L4, ANY],
    ]
    assert found.open.tolist() == [True, False, False]


def test_toleration_that_an_admission_plugin_gave_the_pods_counts():
    """And a workload whose pods run on nodes of a model may use others of the model without taints."""
    tolerant, plain = PodTraits((Toleration("team", "Exists", "", ""),)), GpuKind(GPU, "H100")
    mine = TargetGpus({TAINTED: 1}, {TAINTED: 1}, requested={(GPU, tolerant): 1})
    found = supplied(use({TAINTED: 8, plain: 2}, {TAINTED: 1}, {CHAT: mine}), GpuRequest(GPU, 1, None))
    assert {*found.kinds[0].tolist()} == {0, 1, 2}


def queues(*, local="main", **flavors):
    """ClusterQueue `gpus` with LocalQueue `ai/main`; flavors: nominal quota and what is reserved of it."""
    quotas = {name: FlavorQuota(nominal, None, None, reserved) for name, (nominal, reserved) in flavors.items()}
    queue = ClusterQueue(Ref("", "ClusterQueue", "gpus"), {GPU: quotas})
    return KueueQuotas({"gpus": queue}, {("ai", local): "gpus"}, {"h100": "H100", "l4": "L4"})


def test_queue_limits_all_flavors_together_and_those_of_the_model():
    mine = TargetGpus({L4: 2}, {L4: 2}, requested={(GPU, NO_TRAITS): 3}, admitted={GPU: 2})
    count = use({L4: 8, H100: 8}, {L4: 2}, {CHAT: mine}, kueue=queues(l4=(6, 4), h100=(2, 0)))
    found = supplied(count, GpuRequest(GPU, 1, "L4", "main"), GpuRequest(GPU, 1, None, "main"))
    assert quotas_of(found, 0) == [(4, 2), (2, 2)]
    assert quotas_of(found, 1) == [(4, 0)]


def test_workload_without_a_queue_or_in_an_unknown_one_is_not_limited():
    count = use({L4: 8}, kueue=queues(l4=(1, 1)))
    found = supplied(count, GpuRequest(GPU, 1, None), GpuRequest(GPU, 1, None, "gone"))
    assert (quotas_of(found, 0), quotas_of(found, 1)) == ([], [])
    assert quotas_of(supplied(count, GpuRequest(MIG, 1, None, "main")), 0) == []


def test_template_without_gpus_or_with_two_resources_takes_no_part():
    assert request_of(None) is None
    assert request_of(Scalable(CHAT)) is None
    assert request_of(Scalable(CHAT, gpus={GPU: 1, MIG: 1})) is None
    assert request_of(Scalable(CHAT, gpus={MIG: 2}, gpu_model="H100")) == GpuRequest(MIG, 2, "H100")
    queued = Scalable(CHAT, gpus={GPU: 1}, labels={QUEUE_LABEL: "main"})
    assert request_of(queued) == GpuRequest(GPU, 1, None, "main")
    assert supplied(use({L4: 8}), None, GpuRequest(GPU, 1, None)).gpus.tolist() == [0, 1]


def test_pod_of_an_older_template_with_another_resource_is_counted():
    mine = TargetGpus(held={GpuKind(MIG, "H100"): 1})
    found = supplied(use({L4: 8}, {GpuKind(MIG, "H100"): 1}, {CHAT: mine}), GpuRequest(GPU, 1, None))
    assert found.held.sum() == 1
