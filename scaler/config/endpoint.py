"""Where a page is and how to be let in. Static addresses only: nothing here resolves a name or reads a file.

Worked example: `Endpoint(dns="chat.ai.svc")` of kind "vllm" is one page per address of that Service; for the address
10.0.0.7 it is `http://10.0.0.7:8000/metrics`, because vLLM's pages are there unless somebody says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from exporter import model
from exporter.catalog import KINDS

from .kinds import KIND
from .scalars import DNS, HIGHEST_PORT, URL

Text: TypeAlias = Annotated[str, Field(min_length=1)]
File: TypeAlias = Annotated[str, Field(min_length=1, title="file")]
# Lists arrive as lists; only the tuple itself is lenient about that, its items stay strict.
Many = Field(strict=False)


class Section(BaseModel):
    """A frozen part of the configuration. No value is converted to make it fit, and no key is ignored."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Basic(Section):
    """A user and a password, as exporter-toolkit's web configuration asks for them."""

    username: Text
    """The user's name."""
    password_file: File
    """File with the password. It is read again at each use, so a rotated Secret needs no restart."""


class Tls(Section):
    """How an HTTPS page proves who it is, and how Tidegate does."""

    ca_file: File | None = None
    """PEM file of the authorities to trust. Without it those of the system are trusted, which do not know a
    cluster's own authority."""
    certificate_file: File | None = None
    """PEM file of the certificate to show, for pages that ask for one. Goes with `key_file`."""
    key_file: File | None = None
    """PEM file of that certificate's private key."""
    server_name: Text | None = None
    """The name the page's certificate must carry. Without it: the host of the URL, or the name in `dns`."""
    insecure_skip_verify: bool = False
    """Believe any certificate. Whoever sits between can then tell Tidegate what to scale."""


class Access(Section):
    """How to be let in. Files are read again at each use, because kubelet rotates them."""

    bearer_file: File | None = None
    """File with a token, sent as `Authorization: Bearer`. Not together with `basic`."""
    basic: Basic | None = None
    """User and password. Not together with `bearer_file`."""
    tls: Tls | None = None
    """TLS settings of https pages. Without them the system's authorities are trusted."""


class Endpoint(Section):
    """One page, several pages, or one page per address of a headless Service: exactly one of `url`, `urls`, `dns`."""

    url: Annotated[str, URL] | None = None
    """One page. Without a path the kind's usual one is taken. A ClusterIP Service here reaches one pod by chance:
    for several pods use `dns`."""
    urls: Annotated[tuple[Annotated[str, URL], ...], Many, Field(min_length=1)] | None = None
    """Several pages, each asked every interval, for pods that no Service names."""
    dns: Annotated[str, DNS] | None = None
    """A headless Service: it is resolved again and again and every address is asked, so pods come and go by
    themselves."""
    port: Annotated[int, Field(ge=1, le=HIGHEST_PORT)] | None = None
    """Port of the pages, with `dns`. Without it the kind's usual one."""
    path: Annotated[str, Field(pattern=r"^/[!-~]*$", title="path")] | None = None
    """Path of the pages, with `dns`. Without it the kind's usual one."""
    scheme: Literal["http", "https"] | None = None
    """Scheme of the pages, with `dns`. Without it http."""
    kind: Annotated[str, KIND] | None = None
    """What kind of page it is, which decides how its numbers are read and its usual port and path. Without it: the
    workload's engine for `pods`, epp for `gateway`, dcgm for `gpus`."""
    access: Access | None = None
    """How to be let in. Without it the pages are asked without credentials."""

    def pages(self, kind: str) -> tuple[str, ...]:
        """The URLs that are known without asking DNS; none for `dns`."""
        urls = (self.url,) if self.url is not None else self.urls or ()
        return tuple(_with_path(url, KINDS[kind].path) for url in urls)

    def page_at(self, host: str, kind: str) -> str:
        """The URL of one address that `dns` resolved to."""
        bracketed = f"[{host}]" if ":" in host else host
        port = KINDS[kind].port if self.port is None else self.port
        path = KINDS[kind].path if self.path is None else self.path
        return f"{self.scheme or 'http'}://{bracketed}:{port}{path}"

    def admission(self) -> model.Access:
        """How to be let in, in the exporter's words."""
        access = self.access or Access()
        tls = access.tls or Tls()
        return model.Access(
            bearer_file=access.bearer_file,
            username=access.basic.username if access.basic else None,
            password_file=access.basic.password_file if access.basic else None,
            ca_file=tls.ca_file,
            certificate_file=tls.certificate_file,
            key_file=tls.key_file,
            # A pod's certificate names its Service, and it is asked by its address.
            server_name=tls.server_name or (self.dns.rstrip(".") if self.dns else None),
            insecure_skip_verify=tls.insecure_skip_verify,
        )


def _with_path(url: str, usual: str) -> str:
    parts = urlsplit(url)
    return url if parts.path else parts._replace(path=usual).geturl()
