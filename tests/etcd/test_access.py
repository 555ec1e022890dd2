"""Getting in: users and passwords, tokens that end, TLS, and addresses that cannot be meant."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.servers.etcd import EtcdServer
from tocsin.errors import ConfigError, LeasesUnavailable
from tocsin.lease.etcd import address
from tocsin.lease.etcd.client import EtcdClient
from tocsin.lease.etcd.gateway import Get, Put

Connect = Callable[..., EtcdClient]
Start = Callable[..., EtcdServer]
PASSWORD = "p:w/@ %x"  # what an address must encode
ENCODED = "p%3Aw%2F%40%20%25x"


# --- users and passwords ----------------------------------------------------------------------------------------------


async def administer(server: EtcdServer, *steps: tuple[str, dict[str, str]], token: str = "") -> None:
    """Calls of the gateway that Tocsin itself never makes."""
    async with aiohttp.ClientSession(headers={"Authorization": token} if token else {}) as session:
        for path, body in steps:
            async with session.post(f"http://{server.hostport}/v3/auth/{path}", json=body) as response:
                assert response.status == 200, await response.text()


@pytest.fixture
async def guarded(own_etcd: Start) -> EtcdServer:
    """A server that asks for a user: root, with PASSWORD."""
    server = own_etcd("--bcrypt-cost=4")
    await administer(
        server,
        ("user/add", {"name": "root", "password": PASSWORD}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("enable", {}),
    )
    return server


async def test_a_user_gets_in_and_stays_in_when_tokens_end(guarded: EtcdServer, connect: Connect) -> None:
    client = connect(f"etcd://root:{ENCODED}@{guarded.hostport}")
    lease = await client.grant(600)
    assert (await client.txn([], [Put("a", b"v", lease)])).succeeded
    guarded.restart()  # which forgets every token it gave
    assert [each.value for each in await client.get("a")] == [b"v"]
    assert await client.keepalive(lease)


async def test_a_token_that_is_older_than_a_change_of_users_is_replaced(guarded: EtcdServer, connect: Connect) -> None:
    client = connect(f"etcd://root:{ENCODED}@{guarded.hostport}")
    assert (await client.txn([], [Put("a", b"v")])).succeeded
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://{guarded.hostport}/v3/auth/authenticate", json={"name": "root", "password": PASSWORD}
        ) as response,
    ):
        token = (await response.json())["token"]
    await administer(guarded, ("user/add", {"name": "other", "password": "x"}), token=token)
    assert (await client.txn([], [Get("a")])).found[0][0].value == b"v"
    assert (await client.txn([], [Put("a", b"w")])).succeeded


async def test_without_a_user_the_message_says_that_one_is_needed(guarded: EtcdServer, connect: Connect) -> None:
    with pytest.raises(LeasesUnavailable, match="asks for a user and a password; put them into the setting lease"):
        await connect(f"etcd://{guarded.hostport}").get("a")


async def test_a_wrong_password_is_named_and_not_shown(guarded: EtcdServer, connect: Connect) -> None:
    with pytest.raises(LeasesUnavailable, match="refuses the user root") as refused:
        await connect(f"etcd://root:hunter2@{guarded.hostport}").get("a")
    assert "hunter2" not in str(refused.value)


async def test_a_user_for_a_server_without_users_is_an_error_that_says_so(etcd: EtcdServer, connect: Connect) -> None:
    with pytest.raises(LeasesUnavailable, match="authentication is not enabled"):
        await connect(f"etcd://root:x@{etcd.hostport}").get("a")


# --- TLS --------------------------------------------------------------------------------------------------------------


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certify(folder: Path, name: str, issuer: str | None, extensions: str) -> None:
    """NAME.pem and NAME.key, signed by ISSUER or by itself."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
    openssl(folder, "req", *key, "-new", "-subj", f"/CN={name}", "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text(extensions)
    signer = (
        ("-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial")
        if issuer
        else ("-signkey", f"{name}.key")
    )
    request = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.pem", "-days", "3650")
    openssl(folder, "x509", "-req", *request, *signer)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: an authority `ca`, by it `server` (for 127.0.0.1) and `node`, and a `stranger` authority."""
    folder = tmp_path_factory.mktemp("papers")
    authority = "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\nsubjectKeyIdentifier=hash\n"
    certify(folder, "ca", None, authority)
    certify(folder, "stranger", None, authority)
    signed = "authorityKeyIdentifier=keyid\nextendedKeyUsage=serverAuth,clientAuth\n"
    certify(folder, "server", "ca", signed + "subjectAltName=IP:127.0.0.1\n")
    certify(folder, "node", "ca", signed)
    return folder


@pytest.fixture(scope="module")
def encrypted(papers: Path) -> Iterator[EtcdServer]:
    """A server with TLS that asks for the client's certificate."""
    server = EtcdServer(
        "--client-cert-auth",
        "--trusted-ca-file=ca.pem",
        "--cert-file=server.pem",
        "--key-file=server.key",
        scheme="https",
        files=[papers / name for name in ("ca.pem", "server.pem", "server.key")],
    )
    try:
        yield server.start()
    finally:
        server.remove()


async def test_both_sides_prove_who_they_are(encrypted: EtcdServer, papers: Path, connect: Connect) -> None:
    client = connect(f"etcds://{encrypted.hostport}?ca={papers}/ca.pem&cert={papers}/node.pem&key={papers}/node.key")
    assert (await client.txn([], [Put("a", b"v")])).succeeded
    assert [each.value for each in await client.get("a")] == [b"v"]


async def test_a_server_that_another_authority_vouches_for_is_not_trusted(
    encrypted: EtcdServer, papers: Path, connect: Connect
) -> None:
    for authority in ("", f"?ca={papers}/stranger.pem"):
        with pytest.raises(LeasesUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(f"etcds://{encrypted.hostport}{authority}").get("a")


async def test_a_server_that_is_certified_for_another_name_is_not_trusted(
    encrypted: EtcdServer, papers: Path, connect: Connect
) -> None:
    files = f"ca={papers}/ca.pem&cert={papers}/node.pem&key={papers}/node.key"
    with pytest.raises(LeasesUnavailable, match="not valid for 'localhost'"):
        await connect(f"etcds://localhost:{encrypted.port}?{files}").get("a")


async def test_a_client_without_a_certificate_is_refused(encrypted: EtcdServer, papers: Path, connect: Connect) -> None:
    with pytest.raises(LeasesUnavailable):
        await connect(f"etcds://{encrypted.hostport}?ca={papers}/ca.pem").get("a")


# --- addresses --------------------------------------------------------------------------------------------------------


def test_an_address_names_endpoints_in_order_with_the_usual_port() -> None:
    parsed = address.parse("etcd://a.example,10.0.0.1:1234,[::1]:99")
    assert parsed == address.Address(("http://a.example:2379", "http://10.0.0.1:1234", "http://[::1]:99"))


def test_a_password_is_decoded_and_not_shown() -> None:
    parsed = address.parse(f"etcd://us%40er:{ENCODED}@a")
    assert (parsed.user, parsed.password) == ("us@er", PASSWORD)
    assert PASSWORD not in repr(parsed)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://a:2379", "not the address of an etcd cluster"),
        ("etcd://a/path", "not the address of an etcd cluster"),
        ("etcd://[::1", "not an address"),
        ("etcd://", "an endpoint, number 1, that is not HOST:PORT"),
        ("etcd://a,", "an endpoint, number 2, that is not HOST:PORT"),
        ("etcd://a:0", "an endpoint, number 1"),
        ("etcd://a:65536", "an endpoint, number 1"),
        ("etcd://a b", "an endpoint, number 1"),
        ("etcd://a?ca=x", "names ca and is not encrypted"),
        ("etcds://a?verify=no", "an option that is none"),
        ("etcds://a?ca=", "an option that is none"),
        ("etcds://a?cert=x", "a certificate of one's own needs both"),
        ("etcds://a?ca=/none", "ca=/none"),
        ("etcds://a?cert=/none&key=/none", "cert=/none and key=/none cannot be used"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace("?", r"\?")):
        address.parse(text)


def test_a_message_about_an_address_never_shows_the_password() -> None:
    misplaced = (
        "etcd://u:hunter2?x@a",
        "etcds://u:x?hunter2@a",
        "etcd://u:hunter2/x@a",
        "etcd://u:x#hunter2@a",
        "etcd://[hunter2@a",
    )
    for text in ("etcd://u:hunter2@a:x", "etcd://u:hunter2@a?ca=x", "etc://u:hunter2@a", *misplaced):
        with pytest.raises(ConfigError) as refused:
            address.parse(text)
        assert "hunter2" not in str(refused.value)
