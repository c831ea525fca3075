"""The listener reloads its serving certificate; tested over real handshakes."""

import aiohttp
import pytest
import trustme

from scaler.api.metrics_api.server import create
from scaler.net import AddressInUseError
from scaler.tls import BadTlsFiles, TlsFiles

PATH = "/apis/external.metrics.k8s.io/v1beta1"


async def is_answered(api, authority):
    """Returns whether a client that trusts only this authority gets a response."""
    client = await api.connect(authority=authority, keep=False)
    try:
        return (await client.get(PATH)).status == 401
    except aiohttp.ClientError:
        return False


async def test_rotated_certificate_serves_the_next_connection(api):
    new = trustme.CA()
    assert await is_answered(api, api.server_ca)
    api.write(new)
    assert [await is_answered(api, new), await is_answered(api, api.server_ca)] == [True, False]
    assert api.problems["tls"] == []


async def test_half_written_rotation_keeps_the_old_certificate_and_is_reported_once(api):
    new = trustme.CA()
    api.write(new, key=False)
    assert [await is_answered(api, ca) for ca in (api.server_ca, api.server_ca, new)] == [True, True, False]
    [problem] = api.problems["tls"]
    assert "KEY_VALUES_MISMATCH" in problem
    api.write(new)
    assert await is_answered(api, new)
    assert [problem, None] == api.problems["tls"]


async def test_rotated_certificate_still_admits_the_front_proxy(api):
    api.write(api.server_ca)
    proxy = await api.aggregator()
    assert (await proxy.forward(PATH)).status == 200


async def test_server_without_files_does_not_start(api, tmp_path):
    with pytest.raises(BadTlsFiles, match=r"nothing\.crt"):
        create(
            api.workloads.publisher,
            api.sources,
            host="127.0.0.1",
            port=0,
            files=TlsFiles(str(tmp_path / "nothing.crt"), str(tmp_path / "nothing.key")),
            groups=[],
            clock=api.clock,
        )


async def test_port_in_use_is_an_error_with_the_address(api):
    second = create(
        api.workloads.publisher,
        api.sources,
        host="127.0.0.1",
        port=api.port,
        files=api.files,
        groups=[],
        clock=api.clock,
    )
    with pytest.raises(AddressInUseError, match=f"127.0.0.1:{api.port} is already in use"):
        await second.start()
