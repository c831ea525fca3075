"""The bytes of a page that somebody names on the command line: an address, a file, or standard input.

What goes wrong is a sentence for whoever typed it, by click. Worked example: `bytes_of("-", 10.0)` is standard input;
`bytes_of("http://10.0.0.7:8000/metrics", 10.0)` the page there, or the reason why there is none within 10 s.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

import click
import requests

# A page of 10,000 series is 2 MiB. What is larger than this is no page, and reading on would only fill the memory.
LARGEST_PAGE = 64 * 2**20


def bytes_of(source: str, timeout: float) -> bytes:
    """timeout: seconds for the whole page of a URL. Raises click.ClickException."""
    if source == "-":
        return _all_of(sys.stdin.buffer, source)
    if source.startswith(("http://", "https://")):
        return _page_at(source, timeout)
    try:
        with Path(source).open("rb") as file:
            return _all_of(file, source)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise click.ClickException(f"{source}: {getattr(error, 'strerror', None) or error}") from error


def _all_of(file: BinaryIO, source: str) -> bytes:
    body = file.read(LARGEST_PAGE + 1)
    if len(body) > LARGEST_PAGE:
        raise click.ClickException(_too_large(source))
    return body


def _page_at(url: str, timeout: float) -> bytes:
    until = time.monotonic() + timeout

    def body_of(response: requests.Response) -> bytes:
        body = bytearray()
        for part in response.iter_content(2**16):
            body += part
            if len(body) > LARGEST_PAGE:
                raise click.ClickException(_too_large(url))
            if time.monotonic() > until:  # requests' own limit is between two bytes
                raise requests.Timeout
        return bytes(body)

    try:
        with requests.get(url, timeout=timeout, stream=True) as response:
            response.raise_for_status()
            return body_of(response)
    except requests.HTTPError as error:
        raise click.ClickException(f"{url}: HTTP {error.response.status_code} {error.response.reason}") from error
    except requests.RequestException as error:
        if isinstance(error, requests.Timeout) or time.monotonic() >= until:
            raise click.ClickException(f"{url}: no whole page within {timeout:g} s") from error
        # The innermost reason stands last: "[Errno 111] Connection refused".
        reason = getattr(error.args[0], "reason", error) if error.args else error
        raise click.ClickException(f"{url}: {str(reason).rpartition(': ')[2]}") from error


def _too_large(source: str) -> str:
    return f"{source}: larger than {LARGEST_PAGE >> 20} MiB, so no page of metrics"
