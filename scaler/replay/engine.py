"""The simulated Deployment: continuous batching, a gateway, pods that start and drain; exact between events.

Nothing happens between two events, so time jumps from one to the next: an arrival, the end of a step that reads a
prompt, the end of a run of decode steps (when a sequence ends, or a request arrives that can join), a pod that becomes
ready.

First come, first served; the prompt is read in chunks beside the decoding (vLLM's chunked prefill). A request goes to
the ready replica with the fewest prompt tokens still to read, then the fewest requests, and stays there; only where
none is ready the gateway holds it. Pods that are too many are drained, newest first. Engines may sleep (`set_asleep`).
Not modelled: prefix caches, preemption, the provisioning of nodes.

Worked example: step 0.01 s, prompt_rate 1000/s, nothing else; a request of 100 + 3 tokens arrives at 5.0 at a ready,
idle replica. Its prompt is read at 5.11, which is its first token; its last is at 5.13.
"""

from __future__ import annotations

from math import floor, inf

import numpy as np
from numba import typeof, types

from exporter.model import Floats
from scaler.jit import NUMBER, in_place_kernel, part

from .columns import (
    ADMITTED,
    ALIVE,
    ARRIVED,
    ASLEEP,
    ASLEEP_S,
    AT,
    BEGAN,
    BETWEEN,
    BOUNDARY,
    BUSY,
    CHUNK,
    CONTEXT,
    COUNTED,
    CREATED,
    DECODE,
    DECODE_S,
    DECODING,
    DOING,
    DONE,
    DRAINING,
    FINISHED,
    FINISHED_TOKENS,
    FIRST,
    FIRSTS,
    FREE,
    GATE_HEAD,
    GATE_TAIL,
    HEAD,
    HELD,
    HELD_COUNTED,
    IDLE,
    KV,
    LEFT,
    NEXT,
    NONE,
    NOW,
    OUTPUT,
    PENDING,
    PHASE,
    POD_S,
    PREFILL,
    PROMPT,
    PROMPT_TOKENS,
    QUEUED,
    READ_TOKENS,
    READY,
    READY_AT,
    REQUEST_S,
    RUN,
    STARTING,
    STARTS,
    STEPS,
    TAIL,
    TOKENS,
    TPOT,
    TPOT_BOUNDS,
    TTFT,
    TTFT_BOUNDS,
    WAKE_LOOK_S,
    WAKE_S,
    WAKING,
    Ints,
    ReplayWorld,
    ServerColumns,
    run_s,
    steps_within,
)

# The types for which the engine and the readers of its state are compiled.
WORLD = typeof(ReplayWorld.of(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), 1, 1))
_TTFT, _TPOT = np.array(TTFT_BOUNDS), np.array(TPOT_BOUNDS)
SERVER = typeof(ServerColumns(0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0))


@part
def _push(heap: Ints, size: int, key: int, request: int) -> None:
    position = size
    while position > 0 and heap[(position - 1) // 2, 0] > key:
        heap[position, 0], heap[position, 1] = heap[(position - 1) // 2, 0], heap[(position - 1) // 2, 1]
        position = (position - 1) // 2
    heap[position, 0], heap[position, 1] = key, request


@part
def _pop(heap: Ints, size: int) -> int:
    request = heap[0, 1]
    key, last = heap[size - 1, 0], heap[size - 1, 1]
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[child, 0] >= key:
            break
        heap[position, 0], heap[position, 1] = heap[child, 0], heap[child, 1]
        position = child
    heap[position, 0], heap[position, 1] = key, last
    return request


@part
def _observe(histogram: Ints, bounds: Floats, value: float) -> None:
    """Counts `value` in the first bucket whose bound is not below it."""
    bucket = 0
    while bucket < bounds.shape[0] and value > bounds[bucket]:
        bucket += 1
    histogram[bucket] += 1


@part
def _count_requests(world: ReplayWorld, slot: int, now: float) -> None:
    """Adds the time of a pod's requests to REQUEST_S, before their number or the pod's phase changes."""
    mine, numbers = world.replica_counts[slot], world.replicas[slot]
    if mine[PHASE] != DRAINING:
        world.numbers[REQUEST_S] += (now - numbers[COUNTED]) * (mine[DECODING] + mine[QUEUED])
    numbers[COUNTED] = now


@part
def _count_held(world: ReplayWorld, now: float) -> None:
    """The same for the requests at the gateway."""
    world.numbers[REQUEST_S] += (now - world.numbers[HELD_COUNTED]) * world.counts[HELD]
    world.numbers[HELD_COUNTED] = now


@part
def _done(world: ReplayWorld, slot: int, request: int, now: float) -> None:
    tokens = world.request_counts[request, PROMPT] + world.request_counts[request, OUTPUT]
    world.request_times[request, DONE] = now
    world.replicas[slot, CONTEXT] -= tokens
    world.replicas[slot, KV] -= tokens
    output = world.request_counts[request, OUTPUT]
    world.counts[FINISHED] += 1
    world.counts[FINISHED_TOKENS] += output
    if output > 1:
        _observe(world.histograms[TPOT], _TPOT, (now - world.request_times[request, FIRST]) / (output - 1))


@part
def _prompt_read(world: ReplayWorld, slot: int, request: int, now: float) -> None:
    """Its first token: from now on it decodes, if more are to come."""
    mine, request_row = world.replica_counts[slot], world.request_counts[request]
    mine[HEAD] = request_row[NEXT]
    if mine[HEAD] == NONE:
        mine[TAIL] = NONE
    mine[QUEUED] -= 1
    mine[ADMITTED] -= 1
    world.request_times[request, FIRST] = now
    world.counts[FIRSTS] += 1
    world.counts[READ_TOKENS] += request_row[PROMPT]
    _observe(world.histograms[TTFT], _TTFT, now - world.request_times[request, AT])
    world.replicas[slot, CONTEXT] += request_row[PROMPT] + 1
    world.replicas[slot, KV] += 1
    world.counts[TOKENS] += 1
    if request_row[OUTPUT] == 1:
        _done(world, slot, request, now)
    else:
        _push(world.heap[slot], mine[DECODING], mine[STEPS] + request_row[OUTPUT] - 1, request)
        mine[DECODING] += 1


@part
def _end_step(world: ReplayWorld, slot: int, now: float) -> None:
    """Applies the results of the step, or run of steps, that ends now."""
    mine = world.replica_counts[slot]
    _count_requests(world, slot, now)
    world.replicas[slot, BUSY] += now - world.replicas[slot, BEGAN]
    columns = mine[RUN] if mine[DOING] == DECODE else 1
    generated = columns * mine[DECODING]
    mine[STEPS] += columns
    world.replicas[slot, CONTEXT] += generated
    world.replicas[slot, KV] += generated
    world.counts[TOKENS] += generated
    world.numbers[DECODE_S] += (now - world.replicas[slot, BEGAN]) * mine[DECODING]
    while mine[DECODING] > 0 and world.heap[slot, 0, 0] <= mine[STEPS]:
        _done(world, slot, _pop(world.heap[slot], mine[DECODING]), now)
        mine[DECODING] -= 1
    chunk = mine[CHUNK] if mine[DOING] == PREFILL else 0
    mine[PENDING] -= chunk
    while chunk > 0:
        request = mine[HEAD]
        read = min(chunk, world.request_counts[request, LEFT])
        world.request_counts[request, LEFT] -= read
        chunk -= read
        if world.request_counts[request, LEFT] == 0:
            _prompt_read(world, slot, request, now)
    mine[DOING] = BETWEEN


@part
def _admit(world: ReplayWorld, server: ServerColumns, slot: int) -> int:
    """Admits waiting requests in their order. Returns the prompt tokens that the next step reads."""
    mine = world.replica_counts[slot]
    budget = server.chunk - mine[DECODING]
    reading, position, request = 0, 0, mine[HEAD]
    while request != NONE and reading < budget:
        if position == mine[ADMITTED]:
            prompt, kv = world.request_counts[request, PROMPT], world.replicas[slot, KV]
            in_hand = mine[DECODING] + mine[ADMITTED]
            # One that alone is larger than the cache is served alone, or it would wait for good.
            if in_hand >= server.batch or (in_hand > 0 and kv + prompt > server.kv_tokens):
                break
            world.replicas[slot, KV] += prompt
            mine[ADMITTED] += 1
        reading += min(world.request_counts[request, LEFT], budget - reading)
        request = world.request_counts[request, NEXT]
        position += 1
    return reading


@part
def _begin_step(world: ReplayWorld, server: ServerColumns, slot: int, now: float) -> None:
    mine, numbers = world.replica_counts[slot], world.replicas[slot]
    reading = _admit(world, server, slot)
    numbers[BEGAN] = now
    if reading > 0:
        mine[DOING], mine[CHUNK] = PREFILL, reading
        decoding_s = run_s(server, mine[DECODING], numbers[CONTEXT], 1)
        numbers[BOUNDARY] = now + decoding_s + reading / server.prompt_rate
    elif mine[DECODING] > 0:
        mine[DOING], mine[RUN] = DECODE, world.heap[slot, 0, 0] - mine[STEPS]
        numbers[BOUNDARY] = now + run_s(server, mine[DECODING], numbers[CONTEXT], mine[RUN])
    else:
        mine[DOING] = IDLE
        numbers[BOUNDARY] = inf
        if mine[PHASE] == DRAINING:
            _end_pod(world, slot, now)


@part
def _cut_run(world: ReplayWorld, server: ServerColumns, slot: int, now: float) -> None:
    """A request can join: the run ends with the current step."""
    mine, numbers = world.replica_counts[slot], world.replicas[slot]
    if mine[DOING] != DECODE or mine[DECODING] + mine[ADMITTED] >= server.batch:
        return
    passed = now - numbers[BEGAN]
    ended = steps_within(server, mine[DECODING], numbers[CONTEXT], mine[RUN], passed)
    if ended == 0 or run_s(server, mine[DECODING], numbers[CONTEXT], ended) < passed:
        ended += 1
    if ended < mine[RUN]:
        mine[RUN] = ended
        numbers[BOUNDARY] = numbers[BEGAN] + run_s(server, mine[DECODING], numbers[CONTEXT], ended)


@part
def _end_pod(world: ReplayWorld, slot: int, now: float) -> None:
    world.replica_counts[slot, PHASE] = FREE
    world.numbers[POD_S] += now - world.replicas[slot, CREATED]
    alive, position = world.counts[ALIVE], 0
    while world.order[position] != slot:
        position += 1
    for later in range(position + 1, alive):
        world.order[later - 1] = world.order[later]
    world.counts[ALIVE] = alive - 1


@part
def _chosen(world: ReplayWorld, server: ServerColumns) -> int:
    """The ready replica a request goes to; NONE if there is none, or none that takes more."""
    best, least, fewest = NONE, 0, 0
    for position in range(world.counts[ALIVE]):
        slot = world.order[position]
        mine = world.replica_counts[slot]
        if mine[PHASE] != READY:
            continue
        in_hand = mine[DECODING] + mine[QUEUED]
        if server.slots > 0 and in_hand >= server.slots:
            continue
        if best == NONE or mine[PENDING] < least or (mine[PENDING] == least and in_hand < fewest):
            best, least, fewest = slot, mine[PENDING], in_hand
    return best


@part
def _send(world: ReplayWorld, server: ServerColumns, slot: int, request: int, now: float) -> None:
    mine = world.replica_counts[slot]
    _count_requests(world, slot, now)
    world.request_counts[request, NEXT] = NONE
    if mine[TAIL] == NONE:
        mine[HEAD] = request
    else:
        world.request_counts[mine[TAIL], NEXT] = request
    mine[TAIL] = request
    mine[QUEUED] += 1
    mine[PENDING] += world.request_counts[request, PROMPT]
    if mine[DOING] == IDLE:
        _begin_step(world, server, slot, now)
    else:
        _cut_run(world, server, slot, now)


@part
def _wake(world: ReplayWorld, at: float) -> None:
    """Wakes all engines that sleep; the wake begins at second `at`."""
    for position in range(world.counts[ALIVE]):
        slot = world.order[position]
        if world.replica_counts[slot, PHASE] == ASLEEP:
            world.numbers[ASLEEP_S] += at - world.replicas[slot, BEGAN]
            world.replica_counts[slot, PHASE] = WAKING
            world.replicas[slot, BOUNDARY] = at + world.numbers[WAKE_S]


@part
def _arrive(world: ReplayWorld, server: ServerColumns, now: float) -> None:
    request = world.counts[ARRIVED]
    world.counts[ARRIVED] += 1
    world.counts[PROMPT_TOKENS] += world.request_counts[request, PROMPT]
    slot = NONE if world.counts[HELD] > 0 else _chosen(world, server)
    if slot != NONE:
        _send(world, server, slot, request, now)
        return
    if world.counts[GATE_TAIL] == NONE:
        world.counts[GATE_HEAD] = request
    else:
        world.request_counts[world.counts[GATE_TAIL], NEXT] = request
    world.counts[GATE_TAIL] = request
    _count_held(world, now)
    world.counts[HELD] += 1
    if world.numbers[WAKE_LOOK_S] > 0.0:
        _wake(world, (floor(now / world.numbers[WAKE_LOOK_S]) + 1.0) * world.numbers[WAKE_LOOK_S])


@part
def _send_held(world: ReplayWorld, server: ServerColumns, now: float) -> None:
    while world.counts[HELD] > 0:
        slot = _chosen(world, server)
        if slot == NONE:
            return
        request = world.counts[GATE_HEAD]
        world.counts[GATE_HEAD] = world.request_counts[request, NEXT]
        if world.counts[GATE_HEAD] == NONE:
            world.counts[GATE_TAIL] = NONE
        _count_held(world, now)
        world.counts[HELD] -= 1
        _send(world, server, slot, request, now)


@in_place_kernel(types.void(WORLD, SERVER, NUMBER))
def advance(world: ReplayWorld, server: ServerColumns, until: float) -> None:
    """Plays until `until`, seconds of the load; events at that very moment have happened."""
    while True:
        request = world.counts[ARRIVED]
        arrival = world.request_times[request, AT] if request < world.request_times.shape[0] else inf
        event, slot = inf, NONE
        for position in range(world.counts[ALIVE]):
            one = world.order[position]
            if world.replicas[one, BOUNDARY] < event:
                event, slot = world.replicas[one, BOUNDARY], one
        if min(arrival, event) > until:
            break
        if arrival < event:
            _arrive(world, server, arrival)
        elif world.replica_counts[slot, PHASE] == STARTING or world.replica_counts[slot, PHASE] == WAKING:
            world.replica_counts[slot, PHASE] = READY
            world.replica_counts[slot, DOING] = BETWEEN  # what it is sent at once, it begins with together
            _send_held(world, server, event)
            _begin_step(world, server, slot, event)
        else:
            _end_step(world, slot, event)
            if world.counts[HELD] > 0:
                _send_held(world, server, event)
            _begin_step(world, server, slot, event)
    world.numbers[NOW] = until


@in_place_kernel(types.int64(WORLD, types.int64, types.float64[::1]))
def scale(world: ReplayWorld, replicas: int, start_s: Floats) -> int:
    """Sets the Deployment's replicas, now. start_s: seconds that each pod takes to become ready, used in turn.

    Draining pods are not counted. Returns by how many the number changed. Raises IndexError if more pods are alive than
    there are slots.
    """
    now, present = world.numbers[NOW], 0
    for position in range(world.counts[ALIVE]):
        present += world.replica_counts[world.order[position], PHASE] != DRAINING
    slot = 0
    for _ in range(present, replicas):
        while slot < world.order.shape[0] and world.replica_counts[slot, PHASE] != FREE:
            slot += 1
        if slot == world.order.shape[0]:
            raise IndexError("more pods than slots")
        world.replica_counts[slot] = 0
        world.replica_counts[slot, HEAD] = world.replica_counts[slot, TAIL] = NONE
        world.replica_counts[slot, PHASE] = STARTING
        world.replicas[slot] = 0.0
        world.replicas[slot, CREATED] = now
        ready_at = now + start_s[world.counts[STARTS] % start_s.shape[0]]
        world.replicas[slot, READY_AT] = world.replicas[slot, BOUNDARY] = ready_at
        world.counts[STARTS] += 1
        world.order[world.counts[ALIVE]] = slot
        world.counts[ALIVE] += 1
    newest = world.counts[ALIVE] - 1
    for _ in range(replicas, present):
        while world.replica_counts[world.order[newest], PHASE] == DRAINING:
            newest -= 1
        gone = world.order[newest]
        newest -= 1
        idle = world.replica_counts[gone, DOING] == IDLE
        if world.replica_counts[gone, PHASE] == ASLEEP:
            world.numbers[ASLEEP_S] += now - world.replicas[gone, BEGAN]
        _count_requests(world, gone, now)
        world.replica_counts[gone, PHASE] = DRAINING
        if idle:
            _end_pod(world, gone, now)
    return replicas - present


@in_place_kernel(types.void(WORLD, types.bool_, NUMBER, NUMBER))
def set_asleep(world: ReplayWorld, asleep: bool, wake_s: float, look_s: float) -> None:
    """Puts all ready replicas without requests to sleep, or wakes all that sleep.

    wake_s: seconds that a wake takes. look_s: seconds between two looks at the gateway while engines sleep.
    """
    now = world.numbers[NOW]
    world.numbers[WAKE_S], world.numbers[WAKE_LOOK_S] = wake_s, look_s
    if not asleep:
        _wake(world, now)
        return
    for position in range(world.counts[ALIVE]):
        slot = world.order[position]
        if world.replica_counts[slot, PHASE] == READY and world.replica_counts[slot, DOING] == IDLE:
            world.replica_counts[slot, PHASE] = ASLEEP
            world.replicas[slot, BEGAN] = now
