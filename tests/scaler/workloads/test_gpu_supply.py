"""The GPUs that workloads share: kinds in the order of their price, what is free, and which workloads take part."""

from math import nan

import numpy as np

from exporter.kubernetes.gpu_use import ClusterGpus, GpuKind, TargetGpus
from exporter.kubernetes.objects import Ref, Scalable
from scaler.engine.sharing import free_gpus
from scaler.policy.sharing import NONE
from scaler.workloads.gpu_supply import GpuRequest, request_of, supply

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
H100, L4, ANY = GpuKind(GPU, "H100"), GpuKind(GPU, "L4"), GpuKind(GPU)
CHAT, BATCH = Ref("ai", "Deployment", "chat"), Ref("ai", "Deployment", "batch")
PRICES = {"H100": 6.9, "L4": 0.8}
KINDS = [ANY, H100, L4]  # in the order of columns


def use(allocatable, used=None, by_target=None, waiting=None, quotas=None, requested=None):
    return ClusterGpus(allocatable, used or {}, waiting or {}, by_target or {}, quotas or {}, requested or {})


def holding(**held):
    kinds = {GpuKind(GPU, model): many for model, many in held.items()}
    return TargetGpus(held=kinds, staying=kinds, requested={GPU: sum(held.values())})


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


def test_quota_of_the_namespace_is_what_other_pods_leave():
    key = ("ai", GPU)
    found = supplied(
        use({L4: 8}, {L4: 3}, {CHAT: holding(L4=2)}, quotas={key: 5}, requested={key: 3}), GpuRequest(GPU, 1, None)
    )
    assert (found.quotas.tolist(), found.quota.tolist(), found.requested.tolist()) == ([2], [0], [2])


def test_template_without_gpus_or_with_two_resources_takes_no_part():
    assert request_of(None) is None
    assert request_of(Scalable(CHAT)) is None
    assert request_of(Scalable(CHAT, gpus={GPU: 1, MIG: 1})) is None
    assert request_of(Scalable(CHAT, gpus={MIG: 2}, gpu_model="H100")) == GpuRequest(MIG, 2, "H100")
    assert supplied(use({L4: 8}), None, GpuRequest(GPU, 1, None)).gpus.tolist() == [0, 1]


def test_pod_of_an_older_template_with_another_resource_is_counted():
    mine = TargetGpus(held={GpuKind(MIG, "H100"): 1})
    found = supplied(use({L4: 8}, {GpuKind(MIG, "H100"): 1}, {CHAT: mine}), GpuRequest(GPU, 1, None))
    assert found.held.sum() == 1
