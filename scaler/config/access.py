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
    """User and password."""

    username: Text
    """User name."""
    password_file: File
    """File with the password."""


class Tls(Section):
    """TLS of a target."""

    ca_file: File | None = None
    """PEM file: trusted CAs. null: those of the system, which lack the cluster's own CA."""
    certificate_file: File | None = None
    """PEM file: client certificate. Goes with `key_file`."""
    key_file: File | None = None
    """PEM file: its private key."""
    server_name: Text | None = None
    """Name that the certificate must have. null: the host of the URL, the name in `dns`, or `NAME.NAMESPACE.svc` of
    `service`."""
    insecure_skip_verify: bool = False
    """Accepts any certificate. An attacker in between can then control the replicas."""


class Access(Section):
    """Credentials and TLS. Files are read at each use, because the kubelet rotates them."""

    bearer_file: File | None = None
    """File with a token for `Authorization: Bearer`. Excludes `basic`."""
    basic: Basic | None = None
    """User and password. Excludes `bearer_file`."""
    tls: Tls | None = None
    """TLS of https targets. null: the system's CAs."""


def admission(access: Access, usual_name: str | None = None) -> model.Credentials:
    """`access` in the exporter's words. `usual_name`: what a certificate must carry unless `access` says."""
    tls = access.tls or Tls()
    return model.Credentials(
        bearer_file=access.bearer_file,
        username=access.basic.username if access.basic else None,
        password_file=access.basic.password_file if access.basic else None,
        ca_file=tls.ca_file,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        server_name=tls.server_name or usual_name,
        insecure_skip_verify=tls.insecure_skip_verify,
    )
