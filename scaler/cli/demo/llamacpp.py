"""Runs llama.cpp's own server as a process, with a random model that is written in a moment.

Both packages are optional: `pip install 'tidegate[engines]'` brings `xllamacpp` (the server) and `gguf` (the model).

Worked example: `write_model(path)` writes 0.4 MB in a tenth of a second: two layers, and a vocabulary of bytes, so that
"hello" has five tokens. `start(path, 8081, ServerOptions(slots=2))` answers `/health` with 200 some 0.1 s later;
until then the port refuses connections, or answers 503.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

HOST = "127.0.0.1"
MODEL = "random"
PACKAGES = ("gguf", "xllamacpp")
_BYTES = 256
_CONTROLS = (b"<unk>", b"<s>", b"</s>")
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6  # gguf.TokenType
_SCALE = 0.05  # standard deviation of the weights


class MissingEngine(Exception):  # noqa: N818 - named for what is at fault
    """The packages are not installed; the message is for people."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Of a Llama. The default takes 0.1 ms per token on one core; context: tokens."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    context: int = 32_768


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """slots: requests that run together; each has an equal share of `context`, in tokens. threads: of computation.
    sleep_idle_s: without a request for so long, the model is unloaded; -1: never.
    """

    slots: int = 2
    context: int = 16_384
    threads: int = 1
    sleep_idle_s: int = -1


SMALL_MODEL = ModelSize()
USUAL_SERVER = ServerOptions()


def require() -> None:
    """Raises MissingEngine if a package is missing."""
    try:
        for name in PACKAGES:
            import_module(name)
    except ImportError as error:
        raise MissingEngine(f"llama.cpp: needs pip install 'tidegate[engines]': {error}") from error


def write_model(path: Path, size: ModelSize = SMALL_MODEL, seed: int = 0) -> None:
    """Writes a Llama with random weights as GGUF. Raises MissingEngine."""
    require()
    gguf = import_module("gguf")
    generator, width = np.random.default_rng(seed), size.width
    key_width, inner = width // 2, 2 * width  # two query heads share a key
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, size, inner)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", (generator.standard_normal(shape) * _SCALE).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))

    vocabulary = len(_CONTROLS) + _BYTES
    add("token_embd", vocabulary, width)
    add_norm("output_norm")
    add("output", vocabulary, width)
    for layer in range(size.layers):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm")
        add(f"{block}.attn_q", width, width)
        add(f"{block}.attn_k", key_width, width)
        add(f"{block}.attn_v", key_width, width)
        add(f"{block}.attn_output", width, width)
        add_norm(f"{block}.ffn_norm")
        add(f"{block}.ffn_gate", inner, width)
        add(f"{block}.ffn_up", inner, width)
        add(f"{block}.ffn_down", width, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, size: ModelSize, inner: int) -> None:
    writer.add_block_count(size.layers)
    writer.add_context_length(size.context)
    writer.add_embedding_length(size.width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.heads // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.width // size.heads)
    tokens = [*_CONTROLS, *(f"<0x{byte:02X}>".encode() for byte in range(_BYTES))]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * _BYTES])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)  # so every prompt has one token more than bytes
    writer.add_add_space_prefix(False)


def free_port() -> int:
    """A port that no program listens on now."""
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def start(
    model: Path, port: int, options: ServerOptions = USUAL_SERVER, log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Starts the server on loopback and returns at once. Ends on SIGTERM. log: of what it prints."""
    command = [sys.executable, "-m", __name__, str(model), str(port)]
    command += [f"--slots={options.slots}", f"--context={options.context}", f"--threads={options.threads}"]
    command += [f"--sleep-idle={options.sleep_idle_s}"]
    output = subprocess.DEVNULL if log is None else log
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603 - our own


def serve(model: str, port: int, options: ServerOptions) -> None:
    """Serves until a signal ends the process."""
    llama = import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path, params.model_alias = model, {MODEL}
    params.port = port  # its host is 127.0.0.1 by default
    params.n_parallel, params.n_ctx = options.slots, options.context
    params.kv_unified = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.sleep_idle_seconds = options.sleep_idle_s
    params.endpoint_metrics = params.endpoint_slots = True
    params.warmup = params.fit_params = params.ui = False
    params.cache_ram_mib = 0  # no prompt is read from a cache: the counters then count every prompt token
    params.verbosity = 1
    server = llama.Server(params)
    signal.pause()
    del server  # lived until here


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("--slots", type=int, default=USUAL_SERVER.slots)
    parser.add_argument("--context", type=int, default=USUAL_SERVER.context)
    parser.add_argument("--threads", type=int, default=USUAL_SERVER.threads)
    parser.add_argument("--sleep-idle", type=int, default=USUAL_SERVER.sleep_idle_s)
    given = parser.parse_args()
    serve(given.model, given.port, ServerOptions(given.slots, given.context, given.threads, given.sleep_idle))


if __name__ == "__main__":
    _main()
