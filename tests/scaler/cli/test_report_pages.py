"""`tidegate report --pages FOLDER` makes a report of files, and asks no server."""

import gzip
import json
import os

import pytest
from click.testing import CliRunner

from scaler.cli import main

BEGIN = 1_767_225_600


@pytest.fixture
def folder(tmp_path):
    """An hour of an engine and of its GPU, every minute; the GPU's files are compressed."""
    engine, node = tmp_path / "chat-0", tmp_path / "node-1"
    engine.mkdir()
    node.mkdir()
    for minute in range(61):
        at = BEGIN + 60 * minute
        labels = 'model_name="m"'
        (engine / f"{at}.prom").write_text(
            f"vllm:num_requests_running{{{labels}}} 8\nvllm:num_requests_waiting{{{labels}}} 0\n"
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {120 * minute}\n'
        )
        gpu = 'UUID="GPU-1",namespace="ai",pod="chat-0"'
        text = f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{gpu}}} 0.9\nDCGM_FI_PROF_DRAM_ACTIVE{{{gpu}}} 0.7\n"
        (node / f"{at}.prom.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_profile_and_verdict_of_recorded_files(folder):
    result = report("ai/chat", "--pages", folder, "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (profile,) = found["profiles"]
    assert profile["usage"]["requests_per_second"]["mean"] == pytest.approx(2.0)
    assert profile["usage"]["gpu_dram_active"]["mean"] == pytest.approx(0.7)
    assert (profile["binding"]["verdict"], profile["service_seconds"]) == ("memory_bandwidth", pytest.approx(4.0))
    assert found["recorded"] == {"files": 122, "responses": 122, "targets": 2}
    assert (found["since"], found["now"]) == (BEGIN, BEGIN + 3600)


def test_table_has_the_profile_and_no_empty_ledger(folder):
    result = report("ai/chat", "--pages", folder)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("122 responses of 2 targets in 1h\n")
    assert "memory bandwidth" in result.stdout
    assert "GPU-hours by state" not in result.stdout


def test_files_that_are_no_response_are_counted_and_left_out(folder):
    (folder / "chat-0" / "notes.txt").write_text("remember to stop the recording")
    (folder / "chat-0" / "1767225601.prom").write_bytes(b"\x1f\x8bnot gzip")
    found = json.loads(report("ai/chat", "--pages", folder, "-o", "json").stdout)
    assert found["recorded"] == {"files": 124, "responses": 122, "targets": 2}


def test_time_of_a_file_without_one_in_its_name_is_its_modification(tmp_path):
    for minute in range(3):
        file = tmp_path / f"page-{minute}.txt"
        file.write_text(f'vllm:prompt_tokens_total{{model_name="m"}} {600 * minute}\n')
        os.utime(file, (BEGIN + 60 * minute,) * 2)
    (profile,) = json.loads(report("ai/chat", "--pages", tmp_path, "-o", "json").stdout)["profiles"]
    assert profile["usage"]["prompt_tokens_per_second"]["mean"] == pytest.approx(10.0)


@pytest.mark.parametrize("names", [[], ["ai/chat", "batch"], ["chat"]])
def test_recording_is_of_named_workloads(folder, names):
    result = report(*names, "--pages", folder)
    assert result.exit_code == 1
    assert "--pages: name each workload" in result.output


def test_folder_without_responses_is_an_error(tmp_path):
    result = report("ai/chat", "--pages", tmp_path)
    assert (result.exit_code, "none of 0 files" in result.output) == (1, True)
    assert "--pages: must be a folder" in report("ai/chat", "--pages", tmp_path / "absent").output
    assert report("ai/chat", "--pages", tmp_path, "--prometheus", "http://p").exit_code == 2
