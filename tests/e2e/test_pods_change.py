"""Pods start and end under a steady load, which changes no replicas."""

# As shipped: half of a rise counts after 5 s, so that a target that was scraped earlier does not count twice.
STEADY = {"smoothing.up": "5s", "smoothing.down": "10s"}
A_WHILE_S = 20.0


def test_rollout_with_max_surge_2_changes_no_replicas(tenant, page):
    # 88 requests need 5.5 replicas.
    tenant.deployment("llama", page.vllm, requests=88, replicas=6, surge=2)
    tenant.scaled_object("llama", minimum=1, maximum=12, **STEADY)
    tenant.stays_at("llama", 6, A_WHILE_S)
    with tenant.history("llama") as history:
        tenant.change_template("llama")
        tenant.until_settled("llama", 6)
        tenant.stays_at("llama", 6, A_WHILE_S)
    assert history == [6], tenant.describe("llama")


def test_deletion_of_a_third_of_the_pods_changes_no_replicas(tenant, page):
    tenant.deployment("llama", page.vllm, requests=88, replicas=6)
    tenant.scaled_object("llama", minimum=1, maximum=12, **STEADY)
    tenant.stays_at("llama", 6, A_WHILE_S)
    with tenant.history("llama") as history:
        for pod in tenant.pods("llama")[:2]:
            tenant.delete_pod(pod)
        tenant.stays_at("llama", 6, 5)
        tenant.until_settled("llama", 6)
        tenant.stays_at("llama", 6, A_WHILE_S)
    assert history == [6], tenant.describe("llama")
