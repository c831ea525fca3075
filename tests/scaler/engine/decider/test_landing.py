"""Tests that a single response decides its workload bit by bit as a batch of responses does."""

import numpy as np
import pytest

WORKLOADS = 6


@pytest.mark.parametrize("seed", range(12))
def test_responses_decide_the_same_one_by_one_and_in_a_batch(scene, plan, pod, gateway, page, seed):
    """In a batch the workloads are selected rows of all columns; one by one, each is a slice of its own."""
    chance = np.random.default_rng(seed)
    names = [f"w{number}" for number in range(WORKLOADS)]
    plans = [plan(name, kv=0.8, up=5.0, down=60.0, gateway=number % 2 == 0) for number, name in enumerate(names)]
    single, together = scene(*plans), scene(*plans)
    pods = {name: [pod(10 * number + each, name=name) for each in range(3)] for number, name in enumerate(names)}
    fronts = {name: gateway(name=name, url=f"http://{name}:1") for name in names[::2]}
    for stage in (single, together):
        for name in names:
            stage.has(pods=pods[name], gateway=fronts.get(name), wanted=3, name=name)
    for turn in range(12):
        pages = {}
        for name in chance.permutation(names)[: chance.integers(1, WORKLOADS + 1)]:
            target = fronts.get(name) if name in fronts and chance.random() < 0.3 else chance.choice(pods[name])
            waiting, running = chance.integers(0, 40, 2) * chance.integers(0, 2, 2)
            is_front = target is fronts.get(name)
            pages[target] = (
                page.epp(held=waiting, ready=3)
                if is_front
                else page.vllm(waiting=waiting, running=running, finished=turn)
            )
        together.land_together(pages)
        for target, text in pages.items():
            single.land(target, text)
        if turn % 3 == 2:
            step_s = float(chance.choice([1.0, 5.0, 20.0]))
            for stage in (single, together):
                stage.sweep(step_s)
        assert single.decisions == together.decisions
        mine, theirs = single.decider.columns(), together.decider.columns()
        for name, column in theirs.items():
            np.testing.assert_array_equal(mine[name], column, err_msg=name)
