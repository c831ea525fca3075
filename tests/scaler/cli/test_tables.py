"""The tables of `tidegate read`: unknown is a dash, a line is a row, and untrusted names are only text."""

import io

import pytest
from rich.console import Console

from exporter.agent.view import describe
from exporter.catalog import Reader
from exporter.textformat import parse
from scaler.cli.read import MOST_DROPPED, read_tables, verdict


def document(text, kind="auto"):
    page = parse(text.encode())
    return describe(Reader(kind).read(page, 1000.0), page)


@pytest.fixture
def piped():
    """Prints to a pipe."""

    def show(text, kind="auto", source="page.prom"):
        out = io.StringIO()
        read_tables(document(text, kind), source, Console(file=out))
        return out.getvalue()

    return show


@pytest.fixture
def terminal():
    """Prints to a terminal of that width, without colours."""

    def show(text, width=80, source="page.prom"):
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, color_system=None, width=width, legacy_windows=False)
        read_tables(document(text), source, console)
        return out.getvalue()

    return show


def row(shown, name):
    """Returns the cells of the row that begins with `name`."""
    (line,) = [line for line in shown.splitlines() if line.split()[:1] == [name]]
    return line.split()[1:]


def test_queue_is_a_row_and_unknown_is_a_dash(piped, page):
    shown = piped(page.vllm(waiting=1234, running=0, kv=0.5, model="m"))
    assert row(shown, "m") == ["1,234", "0", "50", "%", "–"]
    assert shown.splitlines()[0] == "vllm  page.prom"
    assert shown.splitlines()[-1] == "One queue: 1,234 requests waiting, 0 running."


def test_average_may_be_a_fraction(piped, page):
    assert row(piped(page.epp(average_waiting=0.5, ready=3, pool="p")), "p")[0] == "1.5"


def test_gpu_is_a_row_with_memory_activity_and_pods(piped, page):
    text = page.gpu("GPU-12345678-9abc", ["chat-0"], engine=0.5, util=100)
    text += 'DCGM_FI_DEV_FB_USED{UUID="GPU-12345678-9abc",modelName="H100"} 1536\n'
    text += 'DCGM_FI_DEV_FB_TOTAL{UUID="GPU-12345678-9abc",modelName="H100"} 2048\n'
    assert row(piped(text), "GPU-12345678") == ["1.5", "2.0", "50", "%", "100", "%", "100", "exclusive", "ai/chat-0"]


def test_unknown_value_of_a_gpu_is_a_dash_and_never_zero(piped, page):
    assert row(piped(page.gpu("GPU-1")), "GPU-1") == ["–", "–", "–", "–", "100", "none"]
    assert " 0 " not in piped(page.gpu("GPU-1"))


def test_small_value_is_not_shown_as_zero(piped, page):
    text = page.gpu("GPU-1", engine=0.0001, util=0) + 'DCGM_FI_DEV_FB_USED{UUID="GPU-1"} 1\n'
    assert row(piped(text), "GPU-1")[:6] == ["<0.1", "–", "<1", "%", "0", "%"]


def test_mig_slice_shows_its_number_and_profile(piped, page):
    shown = piped(page.gpu("GPU-1", ["chat-0"], engine=0.5, mig="7"))
    assert row(shown, "GPU-1")[:2] == ["#7", "1g.10gb"]
    assert "mig ai/chat-0" in shown


def test_shared_gpu_shows_all_pods_and_a_hint(piped, page):
    shown = piped(page.gpu("GPU-1", ["chat-0", ("ml", "train-0")], engine=0.5))
    assert "device ai/chat-0 ml/train-0" in shown
    assert "shares unknown" in shown


def test_uuids_are_cut_to_a_unique_prefix(piped, page):
    shown = piped(page.gpu("GPU-12345678-aaaa-1") + page.gpu("GPU-12345678-aaaa-2"))
    assert row(shown, "GPU-12345678-aaaa-1")
    assert row(shown, "GPU-12345678-aaaa-2")


def test_common_model_is_shown_once(piped, page):
    assert piped(page.gpu("GPU-1") + page.gpu("GPU-2")).count("H100") == 1
    mixed = piped(page.gpu("GPU-1") + page.gpu("GPU-2").replace("H100", "NVIDIA A100"))
    assert (mixed.count("H100"), mixed.count("A100")) == (1, 1)


def test_dropped_line_is_listed_with_its_reason(piped, page):
    shown = piped(page.vllm(waiting=1, running=1) + 'oops\nvllm:num_requests_waiting{model_name="n"} NaN\n')
    assert row(shown, "4") == ["no", "value"]
    assert row(shown, "5") == ["vllm:num_requests_waiting:", "no", "value", "(NaN)"]


def test_number_of_listed_dropped_lines_is_bounded(piped, page):
    shown = piped(page.vllm(waiting=1, running=1) + "oops\n" * (MOST_DROPPED + 7))
    assert shown.count("no value") == MOST_DROPPED
    assert "and at least 7 more" in shown


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The page is empty."),
        ("# HELP a b\n\n", "The page is empty."),
        ("<html>\n<body>\n", "No line of this page is a sample."),
    ],
)
def test_page_without_samples_has_a_hint(piped, text, sentence):
    shown = piped(text)
    assert shown.startswith("no kind found  page.prom\n")
    assert sentence in shown
    assert len(shown.splitlines()) >= 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('vllm:num_requests_waiting{model_name="m"} 1\n', "One queue: 1 request waiting; running requests unknown."),
        ('vllm:num_requests_running{model_name="m"} 2\n', "One queue: 2 requests running; waiting requests unknown."),
        ('vllm:request_success_total{model_name="m"} 2\n', "One queue: waiting and running requests unknown."),
        (
            'nv_inference_pending_request_count{model="a"} 2\nnv_inference_pending_request_count{model="b"} 0\n',
            "2 queues: 2 requests waiting; running requests unknown.",
        ),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 2\n', "One GPU, without a pod's name."),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 2\nDCGM_FI_DEV_GPU_UTIL{UUID="h"} 2\n', "2 GPUs, none with a pod's name."),
    ],
)
def test_verdict_is_one_sentence(text, sentence):
    assert verdict(document(text))[0][1] == sentence


def test_hints_are_given_only_for_problems(page):
    good = page.gpu("GPU-1", ["chat-0"], engine=0.5) + page.gpu("GPU-2", engine=0.5)
    assert len(verdict(document(good))) == 1
    assert len(verdict(document(page.vllm(waiting=0, running=0)))) == 1
    hints = [line for _, line in verdict(document(page.gpu("GPU-1", util=3)))[1:]]
    assert "DCGM_EXPORTER_KUBERNETES" in hints[0]
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in hints[1]
    assert "idleness is unknown" in verdict(document(page.gpu("GPU-1", ["chat-0"])))[1][1]
    assert "m cannot size a workload" in verdict(document(page.vllm(finished=1)))[1][1]


def test_names_are_printed_without_markup_and_control_characters(piped, terminal, page):
    # Rich's markup, and control sequences of terminals: set the title, clear the screen.
    evil = "[red]x[/red] \x1b]0;owned\x07\x1b[2J"
    text = page.vllm(waiting=1, running=1, model=evil) + page.gpu("GPU-1", [("[bold]", "p\x1b[31m")], engine=0.5)
    text += "\x1b[2J\n"
    for shown in (piped(text, "vllm", source="\x1b[2J"), piped(text, "dcgm"), terminal(text)):
        assert "\x1b" not in shown
        assert "\x07" not in shown
    assert "[red]x[/red]" in piped(text, "vllm")
    assert "[bold]/p" in piped(text, "dcgm")


def test_tables_fit_eighty_columns_without_loss(terminal, page):
    pod = "vllm-agg-0-vllmdecodeworker-7d9f8b6c5d-s65j5"
    text = page.gpu("GPU-c4529c8d-69c4-b61d-e0bc-7b2460096005", [("dynamo-workload", pod)], engine=0.5, util=3, mig="7")
    text += "oops " * 40 + "\n"
    shown = terminal(text, width=80)
    assert max(map(len, shown.splitlines())) <= 80
    cells = "".join(line[line.rfind("  ") :].strip() for line in shown.splitlines())
    assert f"dynamo-workload/{pod}" in cells


def test_row_in_a_pipe_is_one_line_without_colours(piped, page):
    pods = [("a-namespace-with-a-long-name", f"worker-{n}-7d9f8b6c5d-s65j5") for n in range(6)]
    shown = piped(page.gpu("GPU-1", pods, engine=0.5))
    (line,) = [line for line in shown.splitlines() if "GPU-1" in line]
    assert all(f"{namespace}/{pod}" in line for namespace, pod in pods)
