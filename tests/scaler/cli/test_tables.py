"""What `tidegate read` shows to people: unknown is a dash, a line is a row, and a stranger's page is only text."""

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
    """What a pipe gets."""

    def show(text, kind="auto", source="page.prom"):
        out = io.StringIO()
        read_tables(document(text, kind), source, Console(file=out))
        return out.getvalue()

    return show


@pytest.fixture
def terminal():
    """What a terminal of so many columns shows, without its colours."""

    def show(text, width=80, source="page.prom"):
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, color_system=None, width=width, legacy_windows=False)
        read_tables(document(text), source, console)
        return out.getvalue()

    return show


def row(shown, name):
    """The cells of the row that begins with `name`."""
    (line,) = [line for line in shown.splitlines() if line.split()[:1] == [name]]
    return line.split()[1:]


def test_a_queue_is_a_row_and_what_it_does_not_say_is_a_dash(piped, page):
    shown = piped(page.vllm(waiting=1234, running=0, kv=0.5, model="m"))
    assert row(shown, "m") == ["1,234", "0", "50", "%", "–"]
    assert shown.splitlines()[0] == "vllm  page.prom"
    assert shown.splitlines()[-1] == "One queue: 1,234 requests waiting, 0 running."


def test_an_average_need_not_be_a_whole_number(piped, page):
    assert row(piped(page.epp(average_waiting=0.5, ready=3, pool="p")), "p")[0] == "1.5"


def test_a_gpu_shows_gib_percent_and_whose_it_is(piped, page):
    text = page.gpu("GPU-12345678-9abc", ["chat-0"], engine=0.5, util=100)
    text += 'DCGM_FI_DEV_FB_USED{UUID="GPU-12345678-9abc",modelName="H100"} 1536\n'
    text += 'DCGM_FI_DEV_FB_TOTAL{UUID="GPU-12345678-9abc",modelName="H100"} 2048\n'
    assert row(piped(text), "GPU-12345678") == ["1.5", "2.0", "50", "%", "100", "%", "100", "exclusive", "ai/chat-0"]


def test_what_a_gpu_does_not_say_is_a_dash_and_never_a_zero(piped, page):
    assert row(piped(page.gpu("GPU-1")), "GPU-1") == ["–", "–", "–", "–", "100", "nobody"]
    assert " 0 " not in piped(page.gpu("GPU-1"))


def test_a_little_is_not_nothing(piped, page):
    text = page.gpu("GPU-1", engine=0.0001, util=0) + 'DCGM_FI_DEV_FB_USED{UUID="GPU-1"} 1\n'
    assert row(piped(text), "GPU-1")[:6] == ["<0.1", "–", "<1", "%", "0", "%"]


def test_a_mig_slice_shows_its_number_and_profile(piped, page):
    shown = piped(page.gpu("GPU-1", ["chat-0"], engine=0.5, mig="7"))
    assert row(shown, "GPU-1")[:2] == ["#7", "1g.10gb"]
    assert "mig ai/chat-0" in shown


def test_the_pods_of_a_shared_gpu_are_all_named_and_it_is_said_what_that_means(piped, page):
    shown = piped(page.gpu("GPU-1", ["chat-0", ("ml", "train-0")], engine=0.5))
    assert "device ai/chat-0 ml/train-0" in shown
    assert "nobody's share is known" in shown


def test_uuids_are_as_long_as_it_takes_to_tell_them_apart(piped, page):
    shown = piped(page.gpu("GPU-12345678-aaaa-1") + page.gpu("GPU-12345678-aaaa-2"))
    assert row(shown, "GPU-12345678-aaaa-1")
    assert row(shown, "GPU-12345678-aaaa-2")


def test_a_model_that_all_share_is_said_once(piped, page):
    assert piped(page.gpu("GPU-1") + page.gpu("GPU-2")).count("H100") == 1
    mixed = piped(page.gpu("GPU-1") + page.gpu("GPU-2").replace("H100", "NVIDIA A100"))
    assert (mixed.count("H100"), mixed.count("A100")) == (1, 1)


def test_what_was_dropped_is_listed_with_its_line_and_reason(piped, page):
    shown = piped(page.vllm(waiting=1, running=1) + 'oops\nvllm:num_requests_waiting{model_name="n"} NaN\n')
    assert row(shown, "4") == ["no", "value"]
    assert row(shown, "5") == ["vllm:num_requests_waiting:", "no", "value", "(NaN)"]


def test_of_many_bad_lines_the_first_are_shown_and_the_rest_counted(piped, page):
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
def test_a_page_with_nothing_on_it_gets_help(piped, text, sentence):
    shown = piped(text)
    assert shown.startswith("no kind found  page.prom\n")
    assert sentence in shown
    assert len(shown.splitlines()) >= 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('vllm:num_requests_waiting{model_name="m"} 1\n', "One queue: 1 request waiting; what runs is not said."),
        ('vllm:num_requests_running{model_name="m"} 2\n', "One queue: 2 requests running; what waits is not said."),
        ('vllm:request_success_total{model_name="m"} 2\n', "One queue: neither what waits nor what runs is said."),
        (
            'nv_inference_pending_request_count{model="a"} 2\nnv_inference_pending_request_count{model="b"} 0\n',
            "2 queues: 2 requests waiting; what runs is not said.",
        ),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 2\n', "One GPU, without a pod's name."),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="g"} 2\nDCGM_FI_DEV_GPU_UTIL{UUID="h"} 2\n', "2 GPUs, none with a pod's name."),
    ],
)
def test_the_verdict_is_one_sentence_for_the_whole_page(text, sentence):
    assert verdict(document(text))[0][1] == sentence


def test_advice_is_given_only_where_there_is_something_to_change(page):
    good = page.gpu("GPU-1", ["chat-0"], engine=0.5) + page.gpu("GPU-2", engine=0.5)
    assert len(verdict(document(good))) == 1
    assert len(verdict(document(page.vllm(waiting=0, running=0)))) == 1
    mute = [line for _, line in verdict(document(page.gpu("GPU-1", util=3)))[1:]]
    assert "DCGM_EXPORTER_KUBERNETES" in mute[0]
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in mute[1]
    assert "cannot be known" in verdict(document(page.gpu("GPU-1", ["chat-0"])))[1][1]
    assert "Nothing can be sized by m" in verdict(document(page.vllm(finished=1)))[1][1]


def test_a_strangers_page_is_only_text(piped, terminal, page):
    # Markup of the table's own language, and sequences that a terminal would obey: a title, a cleared screen.
    evil = "[red]x[/red] \x1b]0;owned\x07\x1b[2J"
    text = page.vllm(waiting=1, running=1, model=evil) + page.gpu("GPU-1", [("[bold]", "p\x1b[31m")], engine=0.5)
    text += "\x1b[2J\n"
    for shown in (piped(text, "vllm", source="\x1b[2J"), piped(text, "dcgm"), terminal(text)):
        assert "\x1b" not in shown
        assert "\x07" not in shown
    assert "[red]x[/red]" in piped(text, "vllm")
    assert "[bold]/p" in piped(text, "dcgm")


def test_eighty_columns_are_enough_and_nothing_is_lost_in_them(terminal, page):
    pod = "vllm-agg-0-vllmdecodeworker-7d9f8b6c5d-s65j5"
    text = page.gpu("GPU-c4529c8d-69c4-b61d-e0bc-7b2460096005", [("dynamo-workload", pod)], engine=0.5, util=3, mig="7")
    text += "oops " * 40 + "\n"
    shown = terminal(text, width=80)
    assert max(map(len, shown.splitlines())) <= 80
    cells = "".join(line[line.rfind("  ") :].strip() for line in shown.splitlines())
    assert f"dynamo-workload/{pod}" in cells


def test_in_a_pipe_a_row_is_a_line_and_there_are_no_colours(piped, page):
    pods = [("a-namespace-with-a-long-name", f"worker-{n}-7d9f8b6c5d-s65j5") for n in range(6)]
    shown = piped(page.gpu("GPU-1", pods, engine=0.5))
    (line,) = [line for line in shown.splitlines() if "GPU-1" in line]
    assert all(f"{namespace}/{pod}" in line for namespace, pod in pods)
