"""Fixtures for all tests: metrics as text, parsed as the daemon parses them, and tools that may be missing."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import textwrap
import zlib

import pytest
from hypothesis import HealthCheck, settings

from exporter.catalog import Reader
from exporter.textformat import parse

# Set in CI, where the tools must be installed: a missing one fails the test instead of skipping it.
REQUIRE_TOOLS = "TIDEGATE_REQUIRE_TOOLS"

# Files of the longest duration. A worker has each file as a whole.
BEGIN_FIRST = frozenset({
    "tests/dashboards/test_queries.py",
    "tests/integration/cluster/test_replicas.py",
    "tests/integration/storyboards/test_races.py",
    "tests/integration/storyboards/test_scenarios.py",
    "tests/scaler/cli/demo/test_play.py",
    "tests/scaler/cli/test_commands.py",
    "tests/scaler/replay/test_tidegate_baseline.py",
    "tests/scaler/replay/test_walk.py",
})  # fmt: skip

# A slow machine must not fail a test. CI draws the same examples every time; other machines draw new ones.
settings.register_profile(
    "tidegate",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make fuzz-inputs` draws new examples in each round, until its time is over.
settings.register_profile("fuzz", settings.get_profile("tidegate"), derandomize=False, max_examples=1_000)
settings.load_profile("tidegate")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Collects without the garbage collector, which finds nothing in 12,000 tests and looks through them again and
    again: half of the time. No later collection looks at them either.
    """
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(config, items):
    """Mixes the files for the workers, so that some wait for processes while others compute. By name, a worker would
    meet all tests that wait at once; by number of tests, as xdist orders them, the two cores would idle at the end, as
    they would if a long file began last.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=turn)


def turn(item):
    file = item.nodeid.partition("::")[0]
    return file not in BEGIN_FIRST, zlib.crc32(file.encode())


def pytest_terminal_summary(terminalreporter):
    """Prints the tests that did not run last, with the reasons."""
    missing = {}
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        missing.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    for reason, tests in missing.items():
        terminalreporter.write_sep("!", f"{reason}: {len(tests)} test(s) did not run", yellow=True)
        for test in tests:
            terminalreporter.write_line(f"  {test}")


@pytest.fixture
def debian_tool():
    """`debian_tool("promtool")`: the path of an installed program. Without it the test is skipped, and listed at the
    end of the run; with TIDEGATE_REQUIRE_TOOLS=1 it fails.
    """

    def find(name, package=None):
        path = shutil.which(name)
        if path is not None:
            return path
        reason = f"{name} is not installed (Debian: apt install {package or name})"
        if os.environ.get(REQUIRE_TOOLS) == "1":
            pytest.fail(f"{reason}, and {REQUIRE_TOOLS}=1 asks for it")
        pytest.skip(reason)

    return find


@pytest.fixture(scope="session")
def samples():
    """`samples(text, kind="auto", at=1000.0)`: metrics as the daemon parses them; indentation does not count."""

    def read(text, kind="auto", at=1000.0):
        return Reader(kind).read(parse(textwrap.dedent(text).lstrip("\n").encode()), at)

    return read


class Text:
    """The smallest metrics that each vendor exposes. None leaves a family out."""

    @staticmethod
    def vllm(
        waiting=None,
        running=None,
        finished=None,
        kv=None,
        tokens=None,
        model="m",
        awake=None,
        prompt=None,
        first_tokens=None,
        gaps=None,
        gap_seconds=None,
        ttft=None,
        tpot=None,
    ):
        """gaps, gap_seconds: number and sum of the times between two tokens. ttft, tpot: requests by `le`."""
        labels = f'{{model_name="{model}",engine="0"}}'
        families = {
            "num_requests_waiting": waiting,
            "num_requests_running": running,
            "request_success_total": finished,
            "generation_tokens_total": tokens,
            "prompt_tokens_total": prompt,
            "time_to_first_token_seconds_count": first_tokens,
            "inter_token_latency_seconds_count": gaps,
            "inter_token_latency_seconds_sum": gap_seconds,
            "kv_cache_usage_perc": kv,
            "cache_config_info": 1,  # identifies vLLM if none of the above is exposed
        }
        states = "" if awake is None else f'vllm:engine_sleep_state{{sleep_state="awake",{labels[1:]} {awake}\n'
        histograms = {"time_to_first_token_seconds": ttft, "request_time_per_output_token_seconds": tpot}
        buckets = "".join(
            f'vllm:{name}_bucket{{le="{le}",{labels[1:]} {count}\n'
            for name, counts in histograms.items()
            for le, count in (counts or {}).items()
        )
        return (
            states
            + buckets
            + "".join(f"vllm:{name}{labels} {value}\n" for name, value in families.items() if value is not None)
        )

    @staticmethod
    def epp(held=None, ready=None, average_waiting=None, average_running=None, pool="p", passed_on=None):
        families = {
            f'extension_flow_control_queue_size{{fairness_id="",priority="0",inference_pool="{pool}"}}': held,
            f'pool_ready_pods{{name="{pool}"}}': ready,
            f'pool_average_queue_size{{name="{pool}"}}': average_waiting,
            f'pool_average_running_requests{{name="{pool}"}}': average_running,
            'objective_running_requests{model_name="m"}': passed_on,
        }
        return "".join(f"inference_{series} {value}\n" for series, value in families.items() if value is not None)

    @staticmethod
    def redis(length, key="jobs"):
        return f'redis_up 1\nredis_key_size{{db="db0",key="{key}"}} {length}\n'

    @staticmethod
    def gpu(uuid, pods=(), engine=None, util=None, mig=None, **more):
        """One GPU (or MIG instance), a line per pod. `pods`: names in namespace `ai`, or (namespace, name)."""
        lines = []
        for pod in pods or [None]:
            namespace, name = (None, None) if pod is None else ("ai", pod) if isinstance(pod, str) else pod
            labels = f'UUID="{uuid}",modelName="H100"'
            labels += f',GPU_I_ID="{mig}",GPU_I_PROFILE="1g.10gb"' if mig is not None else ""
            labels += "".join(f',{label}="{value}"' for label, value in more.items())
            labels += f',namespace="{namespace}",pod="{name}",container="c"' if name else ""
            if engine is not None:
                lines.append(f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {engine}\n")
            if util is not None:
                lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {util}\n")
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 100\n")
        return "".join(lines)


@pytest.fixture(scope="session")
def page():
    """Metrics as text: `page.vllm(waiting=3)`, `page.epp(held=1)`, `page.redis(7)`, `page.gpu("GPU-1", ["chat-0"])`."""
    return Text


@pytest.fixture
def silent_port():
    """A port of 127.0.0.1 that refuses connections and stays reserved during the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
