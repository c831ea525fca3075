"""A trigger's metadata as words to compare, and strangers' text made fit for an error.

It knows which keys are KEDA's own and which values KEDA replaces; it refuses to know what a word means. KEDA hands on
all metadata of a trigger, its connection settings included, and of `…FromEnv` it keeps the name and puts in what the
environment says: those a watched object cannot be held to, and they may be secrets, so they are left out everywhere.

Worked example: `spoken({"scalerAddress": "tidegate:6000", "engine": "vllm", "tokenFromEnv": "hunter2"})` is
`{"engine": "vllm"}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..config.bad_words import shown
from ..config.trigger import FROM_ENV, KEDAS

# An object may be 1.5 MiB of keys, each of which would be looked up for what it was meant to be (about 0.1 ms).
MOST_WORDS = 64
LONGEST_WORD = 1024
# The gRPC server takes messages of 64 KiB. Half of it is for the keys that KEDA adds.
MOST_BYTES = 32 * 1024

# Errors travel in an HTTP/2 trailer, where 8 KiB is what a client must be ready to take.
_SHOWN_PROBLEMS = 8
_PLAIN = re.compile(r"[\w./-]{1,320}", re.ASCII)  # namespace/name, or a key as people write them


def spoken(metadata: Mapping[str, str]) -> dict[str, str]:
    """What a call and the watched object must agree on."""
    return {key: value for key, value in metadata.items() if key not in KEDAS and not key.endswith(FROM_ENV)}


def too_much(words: Mapping[str, str]) -> str | None:
    """Why nobody should try to read these words, if so."""
    if len(words) > MOST_WORDS:
        return f"must have at most {MOST_WORDS} keys, got {len(words)}"
    for key, value in words.items():
        if len(key) > LONGEST_WORD:
            return f"must have keys of at most {LONGEST_WORD} characters, got {shown(key)}"
        if len(value) > LONGEST_WORD:
            return f"must have values of at most {LONGEST_WORD} characters, got {shown(value)} for {plain(key)}"
    size = sum(len(text.encode(errors="surrogatepass")) for word in words.items() for text in word)
    if size > MOST_BYTES:
        return f"must have at most {MOST_BYTES} bytes of keys and values together, got {size}"
    return None


def plain(name: str) -> str:
    """A name as it stands if nobody could mistake it, else as `shown`."""
    return name if _PLAIN.fullmatch(name) else shown(name)


def listed(sentences: Iterable[str]) -> str:
    """All of them, as long as they fit into an error."""
    every = list(sentences)
    more = f"; and {len(every) - _SHOWN_PROBLEMS} more" if len(every) > _SHOWN_PROBLEMS else ""
    return "; ".join(every[:_SHOWN_PROBLEMS]) + more
