"""`tidegate report --gpu` takes speeds on MIG slices from what engines did there, and from a CSV."""

import json

import pytest
from click.testing import CliRunner

from scaler.cli import main

BEGIN, STEP_S = 1_767_225_600, 30
GPU = "NVIDIA A100-SXM4-40GB"
WHOLE = None
PAGE = """vllm:num_requests_running{{model_name="m"}} 8
vllm:num_requests_waiting{{model_name="m"}} {:.0f}
vllm:request_success_total{{model_name="m",finished_reason="stop"}} {:.0f}
vllm:prompt_tokens_total{{model_name="m"}} {:.0f}
vllm:generation_tokens_total{{model_name="m"}} {:.0f}
"""


def record(folder, pod, stays, *, waiting=4, prompt=2.0):
    """An engine of ai/POD and its GPU. stays: (MIG profile or WHOLE, tokens per second), ten minutes each.

    prompt: prompt tokens per generated one.
    """
    engine, node = folder / pod, folder / f"node-of-{pod}"
    engine.mkdir()
    node.mkdir()
    at, tokens = BEGIN, 0.0
    for profile, rate in stays:
        name = f'UUID="GPU-{pod}",modelName="{GPU}",namespace="ai",pod="{pod}"'
        name += "" if profile is WHOLE else f',GPU_I_ID="3",GPU_I_PROFILE="{profile}"'
        size = {WHOLE: 40192, "3g.20gb": 19968, "2g.10gb": 9856, "1g.5gb": 4864}[profile]
        for _ in range(21):
            (engine / f"{at}.prom").write_text(PAGE.format(waiting, tokens / 200, prompt * tokens, tokens))
            (node / f"{at}.prom").write_text(
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{name}}} 0.9\nDCGM_FI_DEV_FB_USED{{{name}}} {0.9 * size:.0f}\n"
                f"DCGM_FI_DEV_FB_FREE{{{name}}} {0.1 * size:.0f}\n"
            )
            at, tokens = at + STEP_S, tokens + STEP_S * rate
        at += 600  # the new pod loads its model


def report(*arguments, status=0):
    shown = CliRunner().invoke(main, ["report", *map(str, arguments)])
    assert shown.exit_code == status, shown.output
    return shown.output


def section(*arguments):
    """Rows by workload and slice, and the note."""
    (found,) = json.loads(report(*arguments, "--gpu", GPU, "-o", "json"))["advice"]
    return {(row[0], row[1]): row[2:] for row in found["rows"]}, found["note"]


def number(cell):
    return float(cell.split(" ")[0])


def test_throughput_on_a_slice_and_the_whole_gpu_predicts_the_other_slices(tmp_path):
    """1,300 of 2,000 tokens per second: 0.65, and less on smaller slices, with the band of measured ones."""
    record(tmp_path, "chat-0", [(WHOLE, 2000.0), ("3g.20gb", 1300.0)])
    rows, note = section("ai/chat", "--pages", tmp_path)
    assert rows["ai/chat", "3g.20gb"] == ["yes", "0.65", "measured"]
    speed, basis = rows["ai/chat", "2g.10gb"][1:]
    assert basis == "one slice"
    assert 0.3 < number(speed) < 0.6
    assert "(" in speed
    assert "not used" not in note


def test_two_workloads_on_slices_alone_are_compared_by_the_ratio_of_their_slices(tmp_path):
    record(tmp_path, "chat-0", [("3g.20gb", 1300.0), ("1g.5gb", 650.0)])
    record(tmp_path, "embed-0", [("2g.10gb", 100.0)])
    rows, note = section("ai/chat", "ai/embed", "--pages", tmp_path)
    fits, speed, basis = rows["ai/chat", "3g.20gb"]
    assert (fits, basis) == ("yes", "ratio of slices")
    assert 0.71 < number(speed) < 0.9
    assert rows["ai/chat", "1g.5gb"][0] == "yes"  # it ran there
    assert rows["ai/embed", "3g.20gb"][2] == "not known"
    assert "ai/embed on 2g.10gb: 100.0 per second, and no whole GPU or second slice to compare" in note


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"waiting": 0}, None), ({"prompt": 2.0}, "3g.20gb: other requests than on 7g.40gb")],
    ids=["without a queue", "with other requests"],
)
def test_throughput_that_does_not_compare_is_no_speed(tmp_path, options, reason):
    record(tmp_path, "chat-0", [(WHOLE, 2000.0), ("3g.20gb", 1300.0)], **options)
    if reason is not None:  # four prompt tokens for each generated one on the slice
        for file in (tmp_path / "chat-0").iterdir():
            if float(file.stem) > BEGIN + 900:
                lines = [line.split(" ") for line in file.read_text().splitlines()]
                counts = {name: float(count) for name, count in lines}
                counts['vllm:prompt_tokens_total{model_name="m"}'] *= 2
                file.write_text("".join(f"{name} {count}\n" for name, count in counts.items()))
    rows, note = section("ai/chat", "--pages", tmp_path)
    assert rows["ai/chat", "3g.20gb"][2] == "not known"
    assert reason is None or reason in note


def test_speeds_of_a_file_are_evidence_for_slices_and_mps(tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    record(pages, "chat-0", [("2g.10gb", 100.0)])
    file = tmp_path / "speeds.csv"
    file.write_text("workload,on,speed\nai/chat,14%,0.4\nai/chat,50%,0.8\n")
    rows, _ = section("ai/chat", "--pages", pages, "--speeds", file)
    assert {rows["ai/chat", name][2] for name in ("1g.5gb", "2g.10gb", "3g.20gb")} == {"mps"}
    file.write_text("workload,on,speed\nai/chat,3g.20gb,0.8\n")
    rows, _ = section("ai/chat", "--pages", pages, "--speeds", file)
    assert rows["ai/chat", "3g.20gb"][1:] == ["0.80", "measured"]
    assert rows["ai/chat", "2g.10gb"][2] == "one slice"


@pytest.mark.parametrize(("text", "message"), [
    ("workload,speed\nai/chat,0.5\n", "speeds.csv:1: columns must be workload, on, speed"),
    ("workload,on,speed\nai/chat,3g.20gb,fast\n", "speeds.csv:2: speed: must be a number, got 'fast'"),
    ("workload,on,speed\nai/chat,3g.40gb,0.5\n", "ai/chat: slices.3g.40gb: must be a profile of the GPU"),
    ("workload,on,speed\nai/chat,14%,1.5\n", "ai/chat: mps.14: must be above 0 and at most 1.1, got 1.5"),
    ("workload,on,speed\nai/caht,14%,0.5\n", "workload: must be one of ai/chat, got 'ai/caht'"),
])  # fmt: skip
def test_wrong_speed_in_a_file_is_named_with_its_place(tmp_path, text, message):
    pages, file = tmp_path / "pages", tmp_path / "speeds.csv"
    pages.mkdir()
    record(pages, "chat-0", [("2g.10gb", 100.0)])
    file.write_text(text)
    assert message in report("ai/chat", "--pages", pages, "--gpu", GPU, "--speeds", file, status=1)
    assert "model with MIG" in report("ai/chat", "--pages", pages, "--gpu", "L4", "--speeds", file, status=1)


def test_engine_of_several_workloads_needs_the_name_of_its_pod(tmp_path):
    record(tmp_path, "chat-0", [(WHOLE, 2000.0)])
    shown = report("ai/chat", "ai/code", "--pages", tmp_path)
    assert "ai/code" not in shown
    shown = report("ai/embed", "ai/code", "--pages", tmp_path, status=1)
    assert "--pages: chat-0: must have the name of a pod of exactly one of ai/embed, ai/code" in shown
