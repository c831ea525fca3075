"""Accounts are exposed on /metrics and as a document, without unknown parts, and only by the leader."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from exporter.model import WorkloadKey
from scaler.api.http import accounting
from scaler.api.http.accounting import AccountsCollector, account, account_of_month, document
from scaler.api.http.server import WebServer
from scaler.engine.accounting import STATES, AccountedSweep, FleetGpus, GpuUse, Ledger
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.policy.estimators.further_hour import FurtherHour
from scaler.workloads.spec import WorkloadSpec

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code", "decode")
SERVING, ASLEEP = STATES.index(GpuUse.SERVING), STATES.index(GpuUse.ASLEEP)


class Books:
    """Holds accounts of two workloads: chat acts on 16 GPUs; code is observed and has 3 replicas where 1 suffices."""

    workloads = (CODE, CHAT)
    observed = np.array([True, False])

    def further_hour(self, workloads, now):
        """Of chat alone: 2 pauses, and half a cold start of unknown length per day."""
        known = {CHAT: (2.0, 7200.0, 7.2, 0.5, np.nan, np.nan)}
        numbers = [known.get(each, (np.nan,) * len(FurtherHour._fields)) for each in workloads]
        return lambda: FurtherHour(*np.array(numbers).T)

    def __init__(self):
        self.books = Ledger(2, gap_s=15.0)
        held = np.array([[np.nan] * len(STATES), [16.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
        self.moment = AccountedSweep(
            state=np.array([ASLEEP, SERVING]),
            gpus=held,
            each=np.array([np.nan, 8.0]),
            queued=np.array([2.0, 0.0]),
            would=np.array([1.0, 2.0]),
            apart=np.array([-2.0, np.nan]),
            wanted=np.array([1.0, 1.0]),
            rising=np.array([np.nan, 1.0]),
            hour=np.array([np.nan, 3.6]),
            watts=np.array([np.nan, 300.0]),
            most=np.array([3.0, 4.0]),
            counts=np.array([True, True]),
            spared=np.zeros(2),
        )
        counted = np.array([[np.nan, np.nan, np.nan], [5.0, 100.0, np.nan]])
        for at in (1000.0, 1010.0):
            self.books.enter(self.moment, counted, at, leads=True)


@pytest.fixture
def books():
    return Books()


@pytest.fixture
def samples(books):
    """`shown(leads=True)`: (name, labels) of each sample -> its value."""

    def collect(*, leads=True):
        registry = CollectorRegistry()
        registry.register(AccountsCollector(lambda: books, lambda now: leads, lambda: 1010.0))
        exposed = (sample for family in registry.collect() for sample in family.samples)
        return {(each.name, *sorted(each.labels.items())): each.value for each in exposed}

    return collect


def of(name, workload, **labels):
    return (f"tidegate_{name}", *sorted({"namespace": "ai", "workload": workload, **labels}.items()))


def test_gpus_are_exposed_by_state_unless_their_number_is_unknown(samples):
    found = samples()
    assert found[of("workload_gpus", "chat", state="serving")] == 16.0
    assert found[of("workload_gpus", "chat", state="asleep")] == 0.0
    assert found[of("workload_gpu_seconds_total", "chat", state="serving")] == 160.0
    assert found[of("workload_state_seconds_total", "code/decode", state="asleep")] == 10.0
    assert not [key for key in found if key[0].startswith("tidegate_workload_gpu") and "code/decode" in str(key)]


def test_requests_and_tokens_are_exposed_if_a_target_has_them(samples):
    found = samples()
    assert found[of("requests_finished_total", "chat")] == 10.0
    assert found[of("tokens_total", "chat", kind="prompt")] == 200.0
    assert of("tokens_total", "chat", kind="generation") not in found
    assert of("requests_finished_total", "code/decode") not in found


def test_only_observed_workload_has_a_shadow(samples):
    found = {key: value for key, value in samples().items() if key[0].startswith("tidegate_shadow")}
    assert found == {
        of("shadow_seconds_total", "code/decode"): 10.0,
        of("shadow_queue_seconds_total", "code/decode"): 0.0,
        of("shadow_disagreement_seconds_total", "code/decode", direction="more"): 0.0,
        of("shadow_disagreement_seconds_total", "code/decode", direction="fewer"): 10.0,
        of("shadow_replicas", "code/decode"): 1.0,
    }, "its GPUs are unknown, so saved GPU-seconds are not exposed"


def test_follower_exposes_no_accounts(samples):
    assert samples(leads=False) == {}


def test_no_accounts_are_exposed_before_the_first_sweep(books):
    registry = CollectorRegistry()
    registry.register(AccountsCollector(lambda: None, lambda now: True, lambda: 0.0))
    assert [sample for family in registry.collect() for sample in family.samples] == []
    nothing = {"now": 5.0, "since": None, "gpu_hour": None, "nodes": None, "workloads": []}
    assert document(None, None, 5.0) == nothing


def test_document_has_null_for_unknown_values(books):
    teams = {CHAT: "search"}.get
    accounts = json.loads(json.dumps(document(account(books, 1010.0), 2.5, 1010.0, teams), allow_nan=False))
    assert (accounts["now"], accounts["since"], accounts["gpu_hour"]) == (1010.0, 1000.0, 2.5)
    chat, code = accounts["workloads"]
    nothing = dict.fromkeys(map(str, STATES), 0.0)
    assert chat == {
        "namespace": "ai", "name": "chat", "trigger": "", "since": 1000.0, "observed": False,
        "gpu_seconds": {**nothing, "serving": 160.0}, "state_seconds": {**nothing, "serving": 10.0},
        "wakes": 0.0, "sleeps": 0.0, "requests_finished": 10.0, "tokens": {"prompt": 200.0, "generation": None},
        "team": "search", "gpu_hour": 3.6, "cost": {**nothing, "serving": pytest.approx(0.16)},
        "priced_gpu_seconds": 160.0, "joules": 3000.0,
        "baseline": {
            "gpu_seconds": {"held": 160.0, "maximum": 320.0, "peak": 160.0},
            "cost": {name: pytest.approx(cost) for name, cost in (("held", 0.16), ("maximum", 0.32), ("peak", 0.16))},
        },
        "per_million_tokens": {
            "cost": {"prompt": pytest.approx(800.0), "generation": None},
            "joules": {"prompt": pytest.approx(15e6), "generation": None},
        },
        "further_hour": {
            "pauses": 2.0, "gpu_seconds": 7200.0, "cost": 7.2, "cold_starts": 0.5, "waiting_s": None, "saved": None,
        },
        "shadow": None,
    }  # fmt: skip
    assert accounts["nodes"] is None
    assert code["further_hour"] is None
    assert (code["team"], code["gpu_hour"], code["joules"]) == (None, None, None)
    assert code["cost"] == dict.fromkeys(map(str, STATES))
    assert code["per_million_tokens"]["cost"] == {"prompt": None, "generation": None}
    assert code["trigger"] == "decode"
    assert code["gpu_seconds"] == dict.fromkeys(map(str, STATES))
    assert code["shadow"] == {
        "seconds": 10.0, "gpu_seconds_saved": None, "gpu_seconds_added": None, "queue_seconds": 0.0,
        "more_seconds": 0.0, "fewer_seconds": 10.0,
    }  # fmt: skip


def test_cost_joules_and_baselines_are_exposed_only_where_they_are_known(samples):
    found = samples()
    assert found[of("workload_cost_total", "chat", state="serving")] == pytest.approx(0.16)
    assert found[of("workload_gpu_hour", "chat")] == 3.6
    assert found[of("workload_joules_total", "chat")] == 3000.0
    assert found[of("workload_baseline_gpu_seconds_total", "chat", baseline="maximum")] == 320.0
    known = ("cost", "joules", "baseline", "priced", "gpu_hour")
    assert not [key for key in found if "code/decode" in str(key) and any(name in key[0] for name in known)]
    assert not [key for key in found if key[0].startswith(("tidegate_node", "tidegate_workload_team"))]


def test_gpus_of_nodes_are_held_or_unallocated(books, samples):
    for at in (1020.0, 1030.0):
        books.books.enter_fleet(FleetGpus(20.0, 72.0), at, leads=True)
    found = samples()
    assert found["tidegate_node_gpu_seconds_total", ("state", "held")] == 160.0
    assert found["tidegate_node_gpu_seconds_total", ("state", "unallocated")] == 40.0
    assert found["tidegate_node_cost_total", ("state", "unallocated")] == pytest.approx(0.04)
    nodes = document(account(books, 1030.0), None, 1030.0)["nodes"]
    assert (nodes["since"], nodes["gpus"], nodes["gpu_seconds"], nodes["unallocated_gpu_seconds"]) == (
        1020.0, 20.0, 200.0, 40.0,
    )  # fmt: skip


def test_ratio_to_tokens_needs_the_price_of_nearly_all_gpus(books):
    books.books.kept.priced[:] *= 0.9
    assert (
        document(account(books, 1010.0), None, 1010.0)["workloads"][0]["per_million_tokens"]["cost"]["prompt"] is None
    )


def entered(begin, days):
    """A decider whose workloads have 8 GPUs and an unknown number, by a sweep every 6 hours."""
    plans = [WorkloadSpec(key, Spec(0, 8, ((Signal.WORK, 16.0),))) for key in (CHAT, CODE)]
    decider = Decider(plans, interval_s=5.0, fresh_intervals=3.0)
    decider.books = Ledger(2, gap_s=86400.0)
    held = np.zeros((2, len(STATES)))
    held[0, 0], held[1, :] = 8.0, np.nan
    sweep = AccountedSweep.blank(2)._replace(state=np.zeros(2, dtype=np.int64), gpus=held, hour=np.array([2.0, np.nan]))
    for quarter in range(4 * days + 1):
        decider.books.enter_fleet(FleetGpus(16.0, 32.0), begin + quarter * 21600.0, leads=True)
        decider.books.enter(sweep, np.full((2, 3), np.nan), begin + quarter * 21600.0, leads=True)
    return decider


def test_month_has_its_own_sums_and_days_and_null_where_nothing_is_known():
    """From 2026-10-30 to 2026-11-02: 2 days of October, and 2 of November."""
    begin = datetime(2026, 10, 30, tzinfo=UTC).timestamp()
    decider, now = entered(begin, 4), begin + 4 * 86400.0
    found = {}
    for month in (24321, 24322, 24310):
        text = json.dumps(document(account_of_month(decider, month, now), None, now), allow_nan=False)
        found[json.loads(text)["month"]] = json.loads(text)
    october, november, before = found["2026-10"], found["2026-11"], found["2025-11"]
    assert (october["since"], october["now"]) == (begin, begin + 2 * 86400.0)
    assert (november["since"], november["now"]) == (begin + 2 * 86400.0, now)
    assert october["months_kept"] == ["2026-10", "2026-11"]
    for each, days in ((october, ["2026-10-30", "2026-10-31"]), (november, ["2026-11-01", "2026-11-02"])):
        chat, code = each["workloads"]
        assert chat["gpu_seconds"]["serving"] == pytest.approx(8 * 2 * 86400.0)
        assert chat["cost"]["serving"] == pytest.approx(2 * 8 * 48.0)
        assert [day["day"] for day in chat["days"] if day["cost"] is not None] == days
        assert set(code["gpu_seconds"].values()) == {None}
        assert {day["gpu_seconds"]["serving"] for day in code["days"]} == {None}
        assert each["nodes"]["gpu_seconds"] == pytest.approx(16 * 2 * 86400.0)
    assert (len(october["workloads"][0]["days"]), len(november["workloads"][0]["days"])) == (31, 2)
    assert (before["since"], before["nodes"], before["workloads"][0]["gpu_seconds"]["serving"]) == (None, None, None)


async def test_month_is_chosen_by_the_query_and_a_wrong_one_is_refused(site):
    begin = datetime(2026, 10, 30, tzinfo=UTC).timestamp()
    decider, now = entered(begin, 4), begin + 4 * 86400.0
    server = WebServer(
        "127.0.0.1", 0, lambda: site.publisher.board, site.health, site.registry, lambda: site.now,
        accounting.routes(lambda: decider, lambda: None, lambda: now),
    )  # fmt: skip
    site.url = f"http://127.0.0.1:{await server.start()}"
    months = [
        json.loads((await site.get(f"/api/v1/accounts{query}"))[2]) for query in ("", "?month=2026-10", "?month=")
    ]
    status, _, text = await site.get("/api/v1/accounts?month=october")
    await server.stop()
    assert [each.get("month") for each in months] == [None, "2026-10", "2026-11"]
    hours = [each["workloads"][0]["gpu_seconds"]["serving"] / 3600.0 for each in months]
    assert hours == pytest.approx([8 * 96.0, 8 * 48.0, 8 * 48.0])
    assert (status, json.loads(text)) == (400, {"error": "month: must be a month as 2026-11, got 'october'"})
