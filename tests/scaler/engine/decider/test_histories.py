"""No history of valid and invalid responses scales to zero while requests are in progress.

A small simulated fleet (two pods of two engines each, a gateway, a node with their GPUs) exposes its metrics as vendors
do. hypothesis draws what happens to the fleet and to its responses. KEDA is simulated: an inactive decision removes the
pods, an active one starts them.

Tidegate itself is restarted and reloaded, and its leader changes, at any time.

Undetectable faults are not drawn: a response that hides all series of an engine from the start, or that loses all
series of a live engine at once, which is what unloading looks like.

    TIDEGATE_FUZZ_MINUTES=60 pytest tests/scaler/engine/decider/test_histories.py    # `make fuzz`
"""

import os
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.catalog import Reader, selection
from exporter.model import Failure, PodKey, ReplicaCount, Role, Target, WorkloadKey
from exporter.scrape.request import read
from exporter.textformat import Scanner
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.policy.columns import Signal, Spec
from scaler.signals.smoothing import HalfLives
from scaler.workloads.spec import WorkloadSpec
from tests.budget import examples

CHAT = WorkloadKey("ai", "chat")
STEP_S = 5.0
GATE = Target("http://gate/metrics", "epp", Role.GATEWAY, CHAT)
NODE = Target("http://node/metrics", "dcgm", Role.GPUS)


@dataclass
class Engine:
    waiting: int = 0
    running: int = 0
    tokens: int = 100


@dataclass
class Pod:
    """One replica: two data-parallel engines of one process, and a GPU of its own."""

    name: str
    started_at: float
    exposes_start: bool = True
    engines: list = field(default_factory=lambda: [Engine(), Engine()])

    @property
    def target(self):
        return Target(f"http://{self.name}/metrics", "vllm", Role.PODS, CHAT, pod=PodKey("ai", self.name))

    def lines(self):
        """Pairs of a line and the number of its engine."""
        found = [(f"process_start_time_seconds {self.started_at}" if self.exposes_start else "# no start time", None)]
        for number, engine in enumerate(self.engines):
            labels = f'{{model_name="m",engine="{number}"}}'
            values = {
                "num_requests_waiting": engine.waiting,
                "num_requests_running": engine.running,
                "generation_tokens_total": engine.tokens,
                "cache_config_info": 1,
            }
            found += [(f"vllm:{name}{labels} {value}", number) for name, value in values.items()]
        return found

    def gpu_lines(self, label=True):
        pod = f',namespace="ai",pod="{self.name}",container="c"' if label else ""
        labels = f'{{UUID="GPU-{self.name}",modelName="H100"{pod}}}'
        active = 0.9 if any(engine.running for engine in self.engines) else 0.0
        return [f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{labels} {active}", f"DCGM_FI_DEV_POWER_USAGE{labels} 100"]


LINE_FAULTS = ("NaN", "negative", "no digit", "not UTF-8", "missing", "conflicting")
GPU_FAULTS = ("missing", "unparsable", "no label", "error")


def with_fault(line, fault):
    """Returns one line with the fault applied; None if the line is missing."""
    head = line.rpartition(" ")[0]
    match fault:
        case "NaN":
            return f"{head} NaN"
        case "negative":
            return f"{head} -1"
        case "no digit":
            return f"{line}O"
        case "not UTF-8":
            return line.replace('"m"', '"\udcff"')
        case "conflicting":
            return f"{head} 0\n{line}"
    return None


class Fleet:
    """The simulated fleet, and the responses that Tidegate gets of it."""

    def __init__(self, *, exposes_start=True):
        self.now, self.number, self.exposes_start = 1000.0, 0, exposes_start
        self.pods, self.held = [], 0
        self.gate_started_at = 1.0
        self.readers = {}
        self.spoilt = {}  # (index of the pod, index of the line) -> fault
        self.page_faults = {}  # index of the pod, or "gate" -> fault
        self.gpu_fault = None
        self.decider = self.new_decider()
        self.decider.expect(GATE)
        self.outcome = (None, True)
        for _ in range(2):
            self.start_pod()

    def named(self, pod):
        return pod

    def node_of(self, pod):
        return None

    def new_decider(self):
        spec = Spec(
            minimum=0, maximum=8, targets=((Signal.WORK, 16.0), (Signal.KV_CACHE, 0.9)), keep_warm=30.0, hold=60.0,
            gateway=True, settle=5.0,
        )  # fmt: skip
        return Decider(
            [WorkloadSpec(CHAT, spec, HalfLives(0.0, 0.0))], interval_s=STEP_S, fresh_intervals=3.0,
            owners=self.owners, pods=self,
        )  # fmt: skip

    def reader(self, target):
        if target not in self.readers:
            self.readers[target] = Reader(target.kind), Scanner(selection())
            self.readers[target][0].restore(self.decider.latest.open_gaps.begin(target))
        return self.readers[target]

    def tidegate(self, change):
        """A new process or configuration continues with the state of the current one."""
        before, self.decider = self.decider, self.new_decider()
        match change:
            case "restarted":
                self.readers = {}
                self.decider.restore(unpack(pack(before.state(self.now))), self.now)
            case "replaced by its follower":
                self.readers = {}
                self.decider.follow_state(unpack(pack(before.share(None, self.now))), self.now)
            case "reloaded":
                self.decider.adopt(before)
        for target in (GATE, *(pod.target for pod in self.pods)):
            self.decider.expect(target)

    def owners(self, pod, at):
        return (CHAT,) if any(each.name == pod.pod for each in self.pods) else ()

    @property
    def work(self):
        return self.held + sum(engine.waiting + engine.running for pod in self.pods for engine in pod.engines)

    def start_pod(self):
        self.number += 1
        self.pods.append(Pod(f"chat-{self.number}", self.now, self.exposes_start))
        self.decider.expect(self.pods[-1].target)

    def stop_pods(self):
        for pod in self.pods:
            self.decider.retire(pod.target)
        self.pods, self.spoilt, self.page_faults = [], {}, {}

    def restart(self, position):
        """The process restarts and loses its requests."""
        if self.pods:
            pod = self.pods[position % len(self.pods)]
            pod.started_at, pod.engines = self.now, [Engine(tokens=0), Engine(tokens=0)]
            for key in [key for key, fault in self.spoilt.items() if fault in ("missing", "no digit", "not UTF-8")]:
                del self.spoilt[key]

    def unload(self, position):
        """Removes an engine without requests, with all of its series."""
        if self.pods:
            pod = self.pods[position % len(self.pods)]
            if len(pod.engines) > 1 and not pod.engines[-1].waiting + pod.engines[-1].running:
                pod.engines.pop()
                self.spoilt = {}

    def load(self, position, engine, waiting, running):
        if self.pods:
            pod = self.pods[position % len(self.pods)]
            chosen = pod.engines[engine % len(pod.engines)]
            chosen.waiting, chosen.running = waiting, running
        else:
            self.held = waiting

    def rest(self):
        self.held = 0
        for pod in self.pods:
            for engine in pod.engines:
                engine.waiting = engine.running = 0

    def mend(self):
        self.spoilt, self.page_faults, self.gpu_fault = {}, {}, None

    def pages(self):
        for position, pod in enumerate(self.pods):
            yield pod.target, self.page_of(position, pod)
        gate = (
            f'inference_extension_flow_control_queue_size{{inference_pool="p"}} {self.held}\n'
            f'inference_pool_ready_pods{{name="p"}} {len(self.pods)}\n'
            f"process_start_time_seconds {self.gate_started_at}\n"
        )
        yield GATE, None if self.page_faults.get("gate") else gate
        yield NODE, self.node_page()

    def page_of(self, position, pod):
        if self.page_faults.get(position) == "error":
            return None
        lines = pod.lines()
        there, left = [], [0] * len(pod.engines)
        for index, (line, engine) in enumerate(lines):
            fault = self.spoilt.get((position, index))
            # Of each engine at least one series stays intact, and the start time always: see above.
            last = engine is not None and index == max(n for n, (_, of) in enumerate(lines) if of == engine)
            whole = engine is None or (last and not left[engine])
            text = line if fault is None or whole else with_fault(line, fault)
            if engine is not None and text == line:
                left[engine] += 1
            if text is not None:
                there.append(text)
        return "" if self.page_faults.get(position) == "empty" else "".join(f"{text}\n" for text in there)

    def node_page(self):
        if self.gpu_fault == "error":
            return None
        lines = ["process_start_time_seconds 1"]
        for pod in self.pods:
            match self.gpu_fault:
                case "missing" if pod is self.pods[-1]:
                    continue
                case "unparsable" if pod is self.pods[-1]:
                    lines += [f"{line}x" for line in pod.gpu_lines()]
                case "no label":
                    lines += pod.gpu_lines(label=False)
                case _:
                    lines += pod.gpu_lines()
        return "".join(f"{line}\n" for line in [*lines, 'DCGM_FI_DEV_SM_CLOCK{UUID="other"} 1'])

    def step(self):
        """One interval: everything is scraped and decided, and the decision is applied."""
        self.now += STEP_S
        for pod in self.pods:
            for engine in pod.engines:
                engine.tokens += 10 * bool(engine.running)
        self.decider.listed(CHAT, len(self.pods))
        self.decider.counted(CHAT, ReplicaCount(len(self.pods), len(self.pods), self.now, existing=len(self.pods)))
        for target, text in self.pages():
            reader, scanner = self.reader(target)
            outcome = Failure("refused", "") if text is None else read(
                text.encode(errors="surrogateescape"), reader, scanner, self.now
            )  # fmt: skip
            if isinstance(outcome, Failure):
                self.decider.missed(target)
            else:
                self.note(self.decider.land(target, outcome, self.now, self.now))
        self.note(self.decider.sweep(self.now))

    def note(self, decisions):
        for decision in decisions:
            before, self.outcome = self.outcome, (decision.replicas, decision.active)
            fell_asleep = before[1] and not decision.active
            assert not (fell_asleep and self.work and self.pods), (
                f"put to sleep with {self.work} requests in progress: {decision.reason}, {decision.evidence}"
            )

    def obey(self):
        replicas, active = self.outcome
        if not active and self.pods:
            self.stop_pods()
        elif active and not self.pods and replicas:
            for _ in range(2):
                self.start_pod()
            self.pods[0].engines[0].waiting, self.held = self.held, 0


POSITION = st.integers(0, 1)
OPS = st.one_of(
    st.tuples(st.just("load"), POSITION, POSITION, st.integers(0, 40), st.integers(0, 20)),
    st.tuples(st.just("rest")),
    st.tuples(st.just("rest")),
    st.tuples(st.just("spoil"), POSITION, st.integers(1, 8), st.sampled_from(LINE_FAULTS)),
    st.tuples(st.just("spoil"), POSITION, st.integers(1, 8), st.sampled_from(LINE_FAULTS)),
    st.tuples(st.just("page"), st.sampled_from([0, 1, "gate"]), st.sampled_from(["error", "empty"])),
    st.tuples(st.just("gpu"), st.sampled_from(GPU_FAULTS)),
    st.tuples(st.just("restart"), POSITION),
    st.tuples(st.just("unload"), POSITION),
    st.tuples(st.just("mend")),
    st.tuples(st.just("tidegate"), st.sampled_from(["restarted", "replaced by its follower", "reloaded"])),
)
# Steps of 5 s after each event: keep-warm takes 6 of them, an unloaded engine is forgotten after 12 or 60.
HISTORIES = st.lists(st.tuples(OPS, st.sampled_from([1, 1, 2, 4, 10])), min_size=1, max_size=15)
LONG_HISTORIES = st.lists(st.tuples(OPS, st.sampled_from([1, 1, 2, 4, 10, 70])), min_size=1, max_size=30)


def play(history, *, exposes_start=True):
    """exposes_start: the engines expose their start time; else only a falling counter shows a restart."""
    fleet = Fleet(exposes_start=exposes_start)
    fleet.step()
    for (name, *how), steps in history:
        match name:
            case "spoil":
                position, line, fault = how
                # A line must have been exposed once before it can be missing.
                fleet.spoilt[position, line] = fault
            case "page":
                fleet.page_faults[how[0]] = how[1]
            case "gpu":
                fleet.gpu_fault = how[0]
            case _:
                getattr(fleet, name)(*how)
        for _ in range(steps):
            fleet.step()
            fleet.obey()
    return fleet


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=examples(15), deadline=None, suppress_health_check=QUIET)
@given(HISTORIES, st.booleans())
def test_no_history_scales_to_zero_while_requests_are_in_progress(history, exposes_start):
    play(history, exposes_start=exposes_start)


def test_series_hidden_since_the_start_of_its_pod_scales_no_request_to_zero():
    """Found by `make fuzz`: asleep for want of work, woken for one request, whose series is never shown."""
    asleep, woken = [(("rest",), 1)] * 6, (("load", 0, 0, 1, 0), 1)
    play([*asleep, woken, (("spoil", 0, 1, "missing"), 10)], exposes_start=False)


@settings(max_examples=examples(4), deadline=None, suppress_health_check=QUIET)
@given(HISTORIES)
def test_repaired_and_idle_fleet_goes_to_zero_and_comes_back_after_every_history(history):
    fleet = play(history)
    fleet.mend()
    fleet.rest()
    for _ in range(200):  # 1,000 s: longer than any hold, any keep-warm time and the removal of an unloaded engine
        fleet.step()
        fleet.obey()
    assert fleet.outcome == (0, False)
    fleet.load(0, 0, 5, 0)
    fleet.step()
    assert fleet.outcome[1] is True


@pytest.mark.skipif("TIDEGATE_FUZZ_MINUTES" not in os.environ, reason="long: TIDEGATE_FUZZ_MINUTES=60, `make fuzz`")
def test_no_history_scales_to_zero_within_the_given_minutes():
    until = time.monotonic() + 60.0 * float(os.environ["TIDEGATE_FUZZ_MINUTES"])
    rounds = 0
    while time.monotonic() < until:
        rounds += 1

        @settings(max_examples=500, deadline=None, suppress_health_check=QUIET, database=None)
        @given(LONG_HISTORIES, st.booleans())
        def search(history, exposes_start):
            play(history, exposes_start=exposes_start)

        search()
    assert rounds
