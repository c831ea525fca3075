"""How to be let in, and what a server's refusal means: shared by every source that opens connections.

Files are read at each use, because kubelet rotates them. No secret gets into a `Failure`.

Worked example: `secret("/var/run/secrets/token")` is its one line of text, or raises a `Refused` with
`Failure(CREDENTIALS, "/var/run/secrets/token: No such file or directory")`.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from exporter.model import Access, Failure, FailureKind


class Refused(Exception):  # noqa: N818 - it is a verdict on its way out, no error of ours
    """The scrape ends here, with this failure."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.failure = Failure(kind, detail)


def unusable(file: str, error: Exception) -> Refused:
    reason = error.strerror if isinstance(error, OSError) else None
    return Refused(FailureKind.CREDENTIALS, f"{file}: {reason or error}")


def tls_context(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise unusable(str(access.ca_file), error) from error
    if access.certificate_file:
        try:
            # Without a password OpenSSL would ask the terminal for that of an encrypted key, and wait.
            context.load_cert_chain(access.certificate_file, access.key_file, password="")
        except (OSError, ssl.SSLError) as error:
            raise unusable(f"{access.certificate_file} with {access.key_file}", error) from error
    if access.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secret(file: str) -> str:
    """A token or password; read each time, because kubelet rotates them (about once an hour)."""
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise unusable(file, error) from error
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise Refused(FailureKind.CREDENTIALS, f"{file}: must hold one line of text")
    return text


def tls_words(error: Exception) -> str:
    cause = getattr(error, "certificate_error", None) or error.__cause__ or error
    # OpenSSL's reasons look like TLSV13_ALERT_CERTIFICATE_REQUIRED.
    reason = (getattr(cause, "reason", None) or str(cause)).lower().replace("_", " ")
    return getattr(cause, "verify_message", None) or reason


def os_words(error: OSError) -> str:
    # asyncio and the resolver put their own words into strerror, and negative numbers into errno.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
