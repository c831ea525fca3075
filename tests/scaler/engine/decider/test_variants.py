"""Tests a queue that is filled in the order of prices: the cheapest variant first, and as much in all as by weight."""

from math import ceil, nan

import numpy as np
import pytest

from exporter.model import WorkloadKey
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.capacity import Estimate
from scaler.policy.groups import BY_PRICE, Membership
from scaler.policy.prices import PriceList
from scaler.policy.variants import SETTLE_S

L4, H100 = "chat-l4", "chat-h100"
WORK, MOST = 16.0, 4


def variant(plan, name, hour, *, order=BY_PRICE, holds=nan, weight=1.0, **spec):
    """A Deployment at zero with up to 4 replicas; 16 requests a replica. hour: the price of a GPU; None unknown."""
    about = {"member": Membership("ai", "chat", weight=weight, order=order, holds=holds), "gpu_hour": hour}
    return plan(name, gateway=True, keep_warm=30.0, maximum=MOST, about=about, **spec)


@pytest.fixture
def stage(scene, plan, gateway):
    def make(l4=0.8, h100=6.9, plans=None, **both):
        pair = plans or (variant(plan, H100, h100, **both), variant(plan, L4, l4, **both))
        made = scene(*pair)
        made.front = {name: gateway(name=name) for name in (H100, L4)}
        for name, front in made.front.items():
            made.has(pods=[], gateway=front, wanted=0, name=name)
        return made

    return make


def fill(stage, page, held):
    """The replicas of both after a round with so many requests in the queue."""
    stage.round_of = {front: page.epp(held=held, ready=0) for front in stage.front.values()}
    stage.now += 5.0
    stage.land_together(stage.round_of)
    stage.sweep()
    return stage.outcome(L4)[0], stage.outcome(H100)[0]


def order_of(stage, name):
    return stage.decision(name).evidence.queue_order


def test_cheapest_variant_is_full_before_the_next_is_woken(stage, page):
    group = stage()
    fill(group, page, 0)
    for held, replicas in ((1, (1, 0)), (64, (4, 0)), (65, (4, 1)), (100, (4, 3))):
        assert fill(group, page, held) == replicas
    prices = "by the price of a replica for an hour: chat-l4 0.8, chat-h100 6.9"
    assert (order_of(group, L4), order_of(group, H100)) == (f"first of 2 {prices}", f"second of 2 {prices}")


def test_order_and_its_reason_are_explained(stage, page):
    group = stage()
    for held in (0, 65):
        fill(group, page, held)
    board = Board(1, group.now, group.decisions)
    explainer = DecisionExplainer(group.decider)
    document = explainer.explain(WorkloadKey("ai", H100), board, group.now, None, None, None)()
    (step,) = [each for each in document["chain"] if each["step"] == "overrides"]
    assert f"Its place in the queue of its group is {order_of(group, H100)}." in step["sentences"]


@pytest.mark.parametrize("held", [1, 16, 17, 63, 64, 65, 100, 128, 500])
def test_total_of_a_group_is_the_same_by_price_as_by_weight(stage, plan, page, held):
    by_price = stage()
    by_weight = stage(plans=(variant(plan, H100, 6.9, order=0), variant(plan, L4, 0.8, order=0)))
    totals, replicas = [], []
    for group in (by_price, by_weight):
        fill(group, page, 0)
        replicas.append(sum(fill(group, page, held)))
        shares = group.decider._latest.totals(np.arange(2), group.now).readings.held
        totals.append(float(shares.sum()))
    assert totals == pytest.approx([held, held])
    # Full variants are whole replicas; by weight each of two rounds up.
    assert replicas[0] == min(ceil(held / WORK), 2 * MOST) <= replicas[1]


def test_weights_divide_the_queue_until_every_price_is_known(stage, page):
    group = stage(l4=None)
    assert fill(group, page, 40) == (2, 2)
    assert order_of(group, L4) == order_of(group, H100) == "by weight: the price of chat-l4 is not known"


def test_member_of_weight_0_needs_no_price(stage, plan, page):
    others = (variant(plan, H100, 6.9), variant(plan, L4, 0.8), variant(plan, "chat-old", None, weight=0.0))
    group = stage(plans=others)
    group.has(pods=[], gateway=group.front[L4], wanted=0, name="chat-old")
    fill(group, page, 0)
    assert fill(group, page, 64) == (4, 0)


def test_configured_requests_in_hand_decide_before_replicas(stage, plan, page):
    pair = (variant(plan, H100, 6.9, holds=256.0, work=256.0), variant(plan, L4, 0.8, holds=16.0))
    group = stage(plans=pair)
    fill(group, page, 0)
    assert fill(group, page, 65) == (0, 1)
    # 6.9 / 256 = 0.027, and 0.8 / 16 = 0.05.
    prices = "by the price of a request in hand for an hour: chat-h100 0.027, chat-l4 0.05"
    assert order_of(group, H100) == f"first of 2 {prices}"


SLO = (2.0, 0.05)


def learn(group, name, step_s):
    """Its engines have served 200 requests, with an empty step of `step_s`."""
    row = group.decider.workloads.index(WorkloadKey("ai", name))
    mine = group.decider._sizes.estimates[row]
    mine[Estimate.STEP_SUM] = step_s * mine[Estimate.STEP_WEIGHT]
    for total, count, each in (
        (Estimate.PROMPT_SUM, Estimate.PROMPTS, 500.0),
        (Estimate.OUTPUT_SUM, Estimate.OUTPUTS, 200.0),
    ):
        mine[count], mine[total] = 200.0, 200.0 * each


def test_learned_capacity_decides_before_replicas_and_small_moves_change_nothing(stage, page):
    group = stage(h100=1.6, slo=SLO)

    def first(l4_s, h100_s):
        """The first of the order, and its unit. Seconds of an empty step; None: not learned yet."""
        for name, step_s in ((L4, l4_s), (H100, h100_s)):
            if step_s is not None:
                learn(group, name, step_s)
        fill(group, page, 1)
        group.now += SETTLE_S
        fill(group, page, 1)
        (found,) = [name for name in (L4, H100) if order_of(group, name).startswith("first of 2 ")]
        return found, order_of(group, found).partition(" by the price of ")[2].partition(":")[0]

    assert first(None, None) == first(0.02, None) == (L4, "a replica for an hour")
    # A step of half the time, and more room under the SLO: three times the requests at twice the price. So it is
    # cheaper, but not yet by more than the band.
    assert first(0.02, 0.012) == (L4, "a million requests")
    assert first(0.02, 0.007) == (H100, "a million requests")
    assert [first(0.02, step_s)[0] for step_s in (0.009, 0.012, 0.013, 0.012)] == [H100] * 4


def test_cheapest_variant_is_full_by_what_its_engine_can_do(stage, page):
    group, again = (stage(slo=SLO, falls_back=True) for _ in range(2))
    fill(group, page, 1)
    assert fill(group, page, 65)[1] == 1  # 4 replicas at 16, as configured
    learn(group, L4, 0.02)
    # 31 a replica: 3.8 requests per second, whose 200 tokens may take 8 s.
    for held in (65, 65, 120):
        fill(group, page, held)
    shares = group.decider._latest.totals(np.arange(2), group.now).readings.held
    assert shares.tolist() == [0.0, 120.0]
    # So it is from the first reading after a restart on.
    again.now = group.now
    again.decider.restore(group.decider.state(group.now), again.now)
    fronts = {front: page.epp(held=120, ready=0) for front in again.front.values()}
    again.land_together(fronts)
    shares = again.decider._latest.totals(np.arange(2), again.now).readings.held
    assert shares.tolist() == [0.0, 120.0]


def test_order_survives_a_restart_that_has_no_prices_yet(stage, page):
    before, after = stage(), stage(l4=None, h100=None)
    for held in (0, 60):
        fill(before, page, held)
    after.now = before.now + 20.0
    after.decider.restore(before.decider.state(before.now), after.now)
    # The price of the accounts is part of the state too; without it the order holds all the same.
    after.decider.books.now.hour[:] = nan
    assert fill(after, page, 60) == (4, 0)
    assert order_of(after, L4) == "first of 2 by price, as before: the price of chat-l4 and chat-h100 is not known"


def test_price_of_the_gpus_that_a_node_shows_decides(scene, plan, gateway, pod, node, page):
    group = scene(variant(plan, H100, None), variant(plan, L4, None), gpu_hours=PriceList())
    group.front = {name: gateway(name=name) for name in (H100, L4)}
    models = {H100: "NVIDIA H100 80GB HBM3", L4: "NVIDIA L4"}
    for name, front in group.front.items():
        group.has(gateway=front, wanted=1, name=name)
    series = [
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="{name}",modelName="{model}",namespace="ai",pod="{name}-0"}} 0.5\n'
        for name, model in models.items()
    ]
    for _ in range(2):
        group.land(node(), "".join(series))
        fill(group, page, 16)
    assert order_of(group, L4) == "first of 2 by the price of a replica for an hour: chat-l4 0.8, chat-h100 6.88"
