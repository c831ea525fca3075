"""Triggers: two lines of metadata, a third line that allows sleep, and calls that are refused."""

import copy

import grpc

from tests.fakes.waiting import until_scraped

QUICK = {"keep_warm": "1s", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0.3s"}


async def test_two_lines_of_metadata_define_a_workload(tenant, page, tidegate, keda):
    # 10 requests at 16 per replica, and at least 2 replicas; the ScaledObject and its scale target have different
    # names.
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=2, maximum=4, engine="vllm")
    await keda.until((2, True), chat)

    # 22 + 22 = 44 requests need 2.75 replicas.
    llama.serve(page.vllm(waiting=12, running=10))
    await keda.until((3, True), chat)

    # 400 requests need 25 replicas, and maxReplicaCount is 4.
    llama.serve(page.vllm(waiting=190, running=10))
    await keda.until((4, True), chat)
    entry = await tidegate.until(lambda entry: entry["reason"] == "capped", tenant.name, "chat")
    assert (entry["evidence"]["replicas_wanted"], entry["evidence"]["replicas_ready"]) == (2, 2)

    # The HPA follows: the new pods are discovered and scraped.
    llama.scale(4)
    new = [llama.pod(page.vllm(waiting=0, running=10)) for _ in range(2)]
    await until_scraped(new[0])
    await tidegate.until_evidence(tenant.name, "chat", replicas_ready=4, running=40.0)
    assert await tidegate.decision(tenant.name, "llama") is None


async def test_workload_with_a_gateway_sleeps_and_a_request_wakes_it_through_the_stream(tenant, page, tidegate, keda):
    front = tenant.service("front", page.epp(held=0, ready=0))
    llama = tenant.deployment("llama")
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=4, engine="vllm", gateway="front", **QUICK)
    await keda.until((0, False), chat)
    async with keda.pushes(chat) as pushed:
        assert await pushed() is False

        front.body = page.epp(held=1, ready=0)
        assert await pushed() is True
        assert await keda.answer(chat) == (1, True)

        # KEDA starts one replica; it loads; the gateway then forwards the request to it.
        llama.scale(1)
        pod = llama.pod(ready=False, listening=False)
        await tidegate.until_evidence(tenant.name, "chat", replicas_wanted=1, replicas_ready=0)
        pod.listen(page.vllm(waiting=0, running=1, finished=0))
        pod.put(ready=True)
        await tidegate.until_evidence(tenant.name, "chat", running=1.0)
        front.body = page.epp(held=0, ready=1)
        await until_scraped(front)
        assert await keda.answer(chat) == (1, True)

        # The request is done, and the keep-warm time passes.
        pod.serve(page.vllm(waiting=0, running=0, finished=1))
        await keda.until((0, False), chat)
        assert await pushed() is False
        async with keda.watching(chat) as responses:
            llama.scale(0)
            await tidegate.until_evidence(tenant.name, "chat", replicas_wanted=0)
            pod.terminate()
            await until_scraped(front)
            pod.remove()
            await tidegate.until_evidence(tenant.name, "chat", replicas_wanted=0, replicas_ready=0)
            await until_scraped(front)
        assert responses == [(0, False)]


async def test_two_workloads_on_one_gateway_follow_only_their_own_model(tenant, page, tidegate, keda):
    def both(small, large):
        return page.epp(held=small, ready=0, pool="small") + page.epp(held=large, ready=0, pool="large")

    front = tenant.service("front", both(0, 0))
    scaled = {}
    for model in ("small", "large"):
        tenant.deployment(model)
        metadata = {"engine": "vllm", "gateway": "front", "model": model, **QUICK}
        scaled[model] = tenant.scaled_object(f"{model}-so", target=model, minimum=0, maximum=9, **metadata)
        await keda.until((0, False), scaled[model])

    async with keda.watching(scaled["large"]) as large:
        front.body = both(40, 0)
        await keda.until((3, True), scaled["small"])
        await until_scraped(front)
    assert large == [(0, False)]

    async with keda.watching(scaled["small"]) as small:
        front.body = both(40, 17)
        await keda.until((2, True), scaled["large"])
    assert small == [(3, True)]


async def test_forged_call_is_refused_and_changes_no_decision(tenant, page, tidegate, keda):
    tenant.deployment("llama", page.vllm(waiting=0, running=40), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    broken = tenant.scaled_object("broken", target="other", engine="vllm", keep_wram="1s")
    await keda.until((3, True), chat)

    unknown, edited, extended = (copy.deepcopy(chat) for _ in range(3))
    unknown["metadata"]["name"] = "made-up"
    edited["spec"]["triggers"][0]["metadata"]["engine"] = "sglang"
    extended["spec"]["triggers"][0]["metadata"]["objectives.work"] = "1"
    elsewhere = copy.deepcopy(chat)
    elsewhere["metadata"]["namespace"] = "kube-system"
    async with keda.watching(chat) as responses:
        for _ in range(10):
            assert [(await keda.refusal(call))[0] for call in (unknown, elsewhere, edited, extended, broken)] == [
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.INVALID_ARGUMENT,
            ]
        await tidegate.sweeps(5)
    assert responses == [(3, True)]
    assert "keep_warm" in (await keda.refusal(broken))[1]
    assert "sglang" not in (await keda.refusal(edited))[1]
    assert tidegate.logged("call refused")
    board = (await tidegate.get("/api/v1/board")).json()["workloads"]
    tenant_workloads = [entry["workload"]["name"] for entry in board if entry["workload"]["namespace"] == tenant.name]
    assert tenant_workloads == ["chat"]
    assert not [entry for entry in board if entry["workload"]["namespace"] == "kube-system"]


async def test_address_of_another_namespace_behind_a_service_is_never_scraped(tenant, page, cluster, keda, request):
    stranger = cluster.tenant(f"other-{tenant.name}"[:60])
    request.addfinalizer(stranger.clear)
    secret = stranger.service("front", page.epp(held=99, ready=1))
    front = tenant.service("front", page.epp(held=0, ready=0))
    tenant.endpoints("front", front.address, secret.address)
    tenant.deployment("llama")
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await keda.until((0, False), chat)
    await until_scraped(front)
    assert (secret.scrapes, await keda.answer(chat)) == (0, (0, False))
