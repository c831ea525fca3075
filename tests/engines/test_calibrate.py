"""`tidegate replay --calibrate` reads a real llama.cpp server."""

import asyncio

import pytest
from click.testing import CliRunner

from scaler.cli import main
from scaler.cli.replay.calibrate import calibrated
from scaler.replay.servers import parse_profile
from tests.fakes.ports import free_ports

from .conftest import sending, serving


async def test_profile_of_a_real_engine_is_one_that_replay_reads(model):
    (port,) = free_ports(1)
    with serving(model, port, slots=2, context=4096) as engine:
        await engine.healthy()

        async def client():
            while True:
                await engine.complete(100, prompt="x" * 60)

        with sending(client() for _ in range(2)):
            text = await asyncio.to_thread(calibrated, [f"{engine.url}/metrics"], 4, 0.4)
    profile, warnings = parse_profile(text, "calibrated.yaml")
    assert warnings == []
    assert 1e-6 < profile.server.step + 2 * profile.server.per_sequence < 0.1
    assert (profile.server.batch, profile.server.kv_tokens) == (2, 4096.0)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "--calibrate: needs one URL, or two files and more"),
        (["http://127.0.0.1:9/metrics"], "--calibrate: http://127.0.0.1:9/metrics: "),
        (["missing-1", "missing-2"], "No such file or directory"),
        ([__file__, __file__], f"{__file__}: needs the metrics of vLLM or llama.cpp"),
    ],
)
def test_source_that_cannot_be_read_is_a_one_line_error(sources, message):
    run = CliRunner().invoke(main, ["replay", "--calibrate", *sources])
    assert run.exit_code == 1
    assert message in run.output
    assert run.output.count("\n") == 1
