"""How to be let in, and the words that every section of the configuration is made of.

Files are named here and read by whoever asks, at each use.

Worked example: `admission(Access(basic=Basic(username="u", password_file="/p")))` is the exporter's
`Access(username="u", password_file="/p")`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from exporter import model

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
    """The name the page's certificate must carry. Without it: the host of the URL, the name in `dns`, or
    `NAME.NAMESPACE.svc` of `service`."""
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


def admission(access: Access, usual_name: str | None = None) -> model.Access:
    """`access` in the exporter's words. `usual_name`: what a certificate must carry unless `access` says."""
    tls = access.tls or Tls()
    return model.Access(
        bearer_file=access.bearer_file,
        username=access.basic.username if access.basic else None,
        password_file=access.basic.password_file if access.basic else None,
        ca_file=tls.ca_file,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        server_name=tls.server_name or usual_name,
        insecure_skip_verify=tls.insecure_skip_verify,
    )
