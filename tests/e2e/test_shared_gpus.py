"""Two Deployments want more GPUs than the node has: priority decides, and a ResourceQuota limits both.

The node's GPUs have a model of their own, so no other node of the cluster counts.
"""

import pytest

from .tenant import QUICK
from .test_events import events_of
from .test_shipped_objects import assert_permitted
from .waiting import until

ALONE = True  # its daemon must see the pods of all namespaces


@pytest.fixture
def eight(node):
    """The node has 8 GPUs."""
    node.allocate(8)
    yield node
    node.allocate(64)


def test_priority_decides_a_quota_limits_and_new_gpus_lift_the_limit(tenant, page, eight):
    for name, requests, priority in (("chat", 8, "10"), ("batch", 72, "0")):
        tenant.deployment(name, page.vllm, requests=requests, gpus=1)
        tenant.scaled_object(name, minimum=1, maximum=9, **QUICK, **{"share.priority": priority})
    until_both(tenant, chat=1, batch=5)

    # 88 requests need 6 replicas, and 72 need 5: 11 of 8 GPUs.
    tenant.set_load("chat", requests=88)
    until_both(tenant, chat=6, batch=2)
    assert tenant.tidegate.decision(tenant.name, "batch")["reason"] == "capacity_limited"
    found = until(lambda: events_of(tenant, "batch"), bool)
    assert {event["reason"] for event in found} == {"CapacityLimited"}

    quota = {"hard": {"requests.nvidia.com/gpu": "5"}}
    metadata = {"name": "gpus", "namespace": tenant.name}
    tenant.api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": quota})
    until_both(tenant, chat=4, batch=1)

    tenant.api.delete(f"/api/v1/namespaces/{tenant.name}/resourcequotas/gpus")
    eight.allocate(16)
    until_both(tenant, chat=6, batch=5)


def until_both(tenant, **wanted):
    for name, replicas in wanted.items():
        tenant.until_replicas(name, replicas)


def test_service_account_has_every_permission_for_sharing(tidegate):
    assert_permitted(tidegate)
