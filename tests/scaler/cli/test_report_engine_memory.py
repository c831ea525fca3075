"""`tidegate report` shows the memory that an engine exposes beside the estimate; what it does not expose is unknown."""

import json

import pytest
from click.testing import CliRunner

from exporter.catalog import Reader
from exporter.model import EngineMemory
from exporter.textformat import Scanner, parse
from scaler.cli import main
from tests.scaler.cli.test_report_advice import LLAMA

BEGIN = 1_767_225_600
GIB = 2**30
VLLM = 'vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="{}",gpu_memory_utilization="{}"}} 1\n'
GPU = """DCGM_FI_DEV_FB_USED{UUID="G",namespace="ai",pod="chat-0"} 70000
DCGM_FI_DEV_FB_TOTAL{UUID="G",namespace="ai",pod="chat-0"} 81920
"""
UNKNOWN = "\N{EN DASH}"


@pytest.fixture
def rows(tmp_path):
    """`rows(config, *options)`: by name of the memory, of an engine with this line in its metrics, on 80 GiB."""

    def read(config, *options):
        engine = f'vllm:num_requests_running{{model_name="m"}} 3\n{config}'
        for folder, text in (("chat-0", engine), ("node", GPU)):
            (tmp_path / "pages" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "pages" / folder / f"{BEGIN}.prom").write_text(text)
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        arguments = ["report", "ai/chat", "--pages", str(tmp_path / "pages"), *options, "-o", "json"]
        shown = CliRunner().invoke(main, [each.replace("MODEL", str(tmp_path / "config.json")) for each in arguments])
        assert shown.exit_code == 0, shown.output
        sections = [each for each in json.loads(shown.output)["advice"] if "engines show it" in each["title"]]
        return {row[1]: tuple(row[2:]) for each in sections for row in each["rows"]}

    return read


def test_blocks_of_the_engine_are_compared_with_the_estimate(rows):
    """For 80 GiB at 0.85 the estimate is a KV cache of 51 GiB. The engine has 27,000 blocks of 2 MiB: 52.7 GiB."""
    found = rows(VLLM.format(27_000, 0.85), "--model", "MODEL")
    assert found["gpu_memory_utilization"] == ("0.85", UNKNOWN, UNKNOWN)
    engine, estimate, difference = found["KV cache, tokens"]
    assert engine == "432,000"
    assert int(estimate.replace(",", "")) == pytest.approx(51 * GIB / 131_072, rel=0.05)
    assert float(difference.split(" ")[0]) == pytest.approx(
        100 * int(estimate.replace(",", "")) / 432_000 - 100, abs=0.1
    )
    assert found["KV cache, GiB"][0] == "52.7"
    assert found["GPU memory held, GiB"][0] == "68.4"


def test_estimate_follows_the_ratio_of_the_engine(rows):
    half, most = (
        int(rows(VLLM.format(27_000, ratio), "--model", "MODEL")["KV cache, tokens"][1].replace(",", ""))
        for ratio in (0.5, 0.9)
    )
    assert (most - half) * 131_072 == pytest.approx(0.4 * 80 * GIB, rel=0.01)


def test_without_a_model_or_a_ratio_there_is_no_estimate(rows):
    assert rows(VLLM.format(27_000, 0.85))["KV cache, tokens"] == ("432,000", UNKNOWN, UNKNOWN)
    assert rows(VLLM.format("None", 0.85), "--model", "MODEL")["KV cache, tokens"][0] == UNKNOWN
    found = rows("sglang:max_total_num_tokens 500000\n", "--model", "MODEL")
    assert found["KV cache, tokens"] == ("500,000", UNKNOWN, UNKNOWN)


def test_engine_that_shows_nothing_has_no_section(rows):
    assert rows("", "--model", "MODEL") == {}


@pytest.mark.parametrize(("text", "expected"), [
    ("", None),
    ('vllm:cache_config_info{block_size="16",num_gpu_blocks="0"} 1\n', None),
    ('vllm:cache_config_info{block_size="16",gpu_memory_utilization="nan"} 1\n', None),
    ('vllm:cache_config_info{block_size="16",gpu_memory_utilization="0.9"} 1\n', EngineMemory(None, 0.9)),
    ('sglang:cache_config_info{page_size="64",num_pages="100"} 1\n', EngineMemory(6400, None)),
    ("sglang:max_total_num_tokens NaN\n", None),
    (VLLM.format(20, 0.9) + VLLM.format(10, 0.9).replace('engine="0"', 'engine="1"'), EngineMemory(160, 0.9)),
])  # fmt: skip
def test_what_an_engine_does_not_show_is_unknown_and_the_smallest_cache_counts(text, expected):
    page = parse(b'vllm:num_requests_running{model_name="m"} 3\n' + text.encode())
    assert Reader("auto").read(page, 1000.0).memory == expected


def test_memory_follows_a_value_that_changes_under_the_same_series():
    reader, scanner = Reader("auto"), Scanner()
    tokens = []
    for count in (500, 500, 800):
        page = scanner.scan(f"sglang:num_running_reqs 1\nsglang:max_total_num_tokens {count}\n".encode())
        tokens.append(reader.read(page, 1000.0).memory.kv_tokens)
    assert tokens == [500, 500, 800]
