"""The running daemon measures the SLO over real HTTP: the metrics, the Board and the explanation of two engines."""

import json
import signal

import pytest

from tests.fakes.waiting import until, until_scraped


def page(served, late=0, buckets=True):
    """vLLM's metrics after so many requests, of which `late` had a first token later than 2 s."""
    labels = 'model_name="m",engine="0"'
    numbers = {
        "num_requests_waiting": 0, "num_requests_running": 1, "request_success_total": served,
        "prompt_tokens_total": 500 * served, "generation_tokens_total": 200 * served,
        "time_to_first_token_seconds_count": served, "inter_token_latency_seconds_count": 199 * served,
        "inter_token_latency_seconds_sum": 4 * served,
    }  # fmt: skip
    histograms = {
        "time_to_first_token_seconds": {"1.0": served - late, "2.5": served - late, "+Inf": served},
        "request_time_per_output_token_seconds": {"0.05": served, "0.075": served, "+Inf": served},
    }
    lines = [f"vllm:{name}{{{labels}}} {value}" for name, value in numbers.items()]
    if buckets:
        lines += [
            f'vllm:{name}_bucket{{{labels},le="{le}"}} {count}'
            for name, counts in histograms.items()
            for le, count in counts.items()
        ]
    return "\n".join([*lines, ""]).encode()


def workload(targets, name, slo):
    return (
        f"  - namespace: ai\n    name: {name}\n    engine: vllm\n    slo: {slo}\n"
        f'    pods: {{url: "{targets.url(name)}"}}\n    replicas: {{min: 1, max: 8}}\n'
    )


async def explained(running, name):
    document = json.loads((await running.get(f"/api/v1/explain/ai/{name}"))[1])
    (step,) = [step for step in document["chain"] if step["step"] == "objectives"]
    return " ".join(step["sentences"])


async def sample(running, series):
    """The value of a series; None if there is none."""
    lines = (await running.get("/metrics"))[1].splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(series)), None)


async def test_engines_with_and_without_histograms_and_a_reload_with_another_slo(daemon, targets):
    targets["chat"].body, targets["plain"].body = page(1000), page(1000, buckets=False)
    both = workload(targets, "chat", "{ttft: 2s, itl: 60ms}") + workload(targets, "plain", "{ttft: 2s, itl: 60ms}")
    async with daemon(both) as running:
        ratio = 'tidegate_slo_attainment_ratio{namespace="ai",window="3d",workload="chat"}'
        requests = 'tidegate_slo_requests_total{namespace="ai",workload="chat"}'

        # Two responses make the first rate. Until then the SLO is neither met nor missed.
        await until_scraped(targets["chat"])
        assert await sample(running, ratio) is None

        # 200 requests, of which 1 is late.
        targets["chat"].body, targets["plain"].body = page(1200, late=1), page(1200, buckets=False)
        await running.until_metric(ratio)
        assert await sample(running, ratio) == pytest.approx(0.995)
        left = await sample(running, 'tidegate_slo_error_budget_ratio{namespace="ai",workload="chat"}')
        assert left == pytest.approx(0.5)
        sentence = "99.5 % of the requests of the last 3 days met the SLO: ttft 2s, itl 60ms; 50 % of the error budget"
        assert sentence in await explained(running, "chat")

        # An engine without buckets has a sentence and no number.
        missing = "no histogram with a bucket near its ttft of 2s and near its itl of 60ms"
        assert missing in await explained(running, "plain")
        assert await sample(running, ratio.replace("chat", "plain")) is None
        assert await sample(running, requests.replace("chat", "plain")) is None

        # Another SLO keeps what is measured, and judges what comes by the new one: 1 s has other buckets.
        running.config.write_text(running.config.read_text().replace("ttft: 2s", "ttft: 1s"))
        running.process.send_signal(signal.SIGHUP)
        await until(lambda: explained(running, "chat"), lambda text: "ttft 1s" in text)
        assert await sample(running, ratio) == pytest.approx(0.995)
        await until_scraped(targets["chat"])
        served = await sample(running, requests)
        targets["chat"].body = page(1400, late=201)
        await until(lambda: sample(running, requests), lambda value: value > served)
        assert await sample(running, ratio) < 0.9
