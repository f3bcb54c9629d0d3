"""Links on which others read along, write, and pass themselves off as somebody else."""

import asyncio
import pickle
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509

from tests.e2e.certificates import Authority as OwnAuthority
from tests.transport.peers import SECRET, Peer, Server, run
from tidegate.config.configuration import Configuration
from tidegate.config.security import link_settings
from tidegate.errors import ConfigError, PeerLost
from tidegate.model.addresses import is_loopback
from tidegate.model.control import SlotInvitation
from tidegate.model.keys import Keys
from tidegate.model.settings import LinkProtection, LinkSettings, TlsStores
from tidegate.transport.authority import Authority
from tidegate.transport.handshake import TAG_BYTES, Handshake, Seal
from tidegate.transport.keys import own_fingerprint
from tidegate.transport.security import LinkSecurity
from tidegate.transport.tcp import TcpNetwork

LENGTH = struct.Struct("!I")
LIMIT_S = 100.0
Pass = Callable[[bytes], bytes]


class Relay:
    """Stands between two peers and passes on what they say, or what it makes of that.

    to_server: what becomes of a piece that the one who dials has sent.
    """

    def __init__(self, address: str, to_server: Pass = bytes) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._to_server = to_server
        self._tasks: list[asyncio.Task[None]] = []
        self.seen = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def listen(self) -> str:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(self._host, self._port)
        self.writers = [to_there, writer]
        await asyncio.gather(
            self._pass(reader, to_there, self._to_server), self._pass(there, writer, bytes)
        )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, made: Pass
    ) -> None:
        try:
            while data := await reader.read(65_536):
                self.seen += data
                writer.write(made(data))
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        self._server.close()
        for writer in self.writers:
            writer.close()


def a_network(**protection: object) -> TcpNetwork:
    return TcpNetwork(secret=SECRET, host="127.0.0.1", answer_timeout_s=LIMIT_S, **protection)  # type: ignore[arg-type]


def encrypted(authority: Authority) -> tuple[TcpNetwork, TcpNetwork]:
    return a_network(keys=authority.issue("driver")), a_network(keys=authority.issue("slot"))


def sealed() -> tuple[TcpNetwork, TcpNetwork]:
    return a_network(sealed=True), a_network(sealed=True)


PROTECTED = {"tls": lambda: encrypted(Authority()), "sealed": sealed}


@pytest.fixture(params=PROTECTED)
def ends(request: pytest.FixtureRequest) -> tuple[TcpNetwork, TcpNetwork]:
    return PROTECTED[request.param]()


def test_a_frame_that_somebody_else_puts_into_a_link_is_never_read(
    ends: tuple[TcpNetwork, TcpNetwork],
) -> None:
    async def work() -> None:
        here, there = ends
        server, peer = Server(), Peer()
        listener = await here.listen(server.accept)
        relay = Relay(listener.address)
        wire = await there.connect(await relay.listen(), "slot-1", peer)
        theirs = await server.joined()
        wire.send([b"one"])
        await theirs.has(1)
        evil = pickle.dumps(print)
        relay.writers[0].write(LENGTH.pack(len(evil)) + evil)
        assert isinstance(await theirs.ended(), PeerLost)
        assert theirs.frames == [b"one"]
        await peer.ended()
        await relay.close()
        await listener.close()

    run(work())


def test_nobody_on_the_way_can_read_what_is_encrypted() -> None:
    async def work() -> None:
        here, there = encrypted(Authority())
        server, peer = Server(), Peer()
        listener = await here.listen(server.accept)
        relay = Relay(listener.address)
        wire = await there.connect(await relay.listen(), "slot-1", peer)
        theirs = await server.joined()
        wire.send([b"a row of a customer" * 100])
        await theirs.has(1)
        assert relay.seen and b"customer" not in relay.seen and b"slot-1" not in relay.seen
        wire.close()
        await theirs.ended()
        await peer.ended()
        await relay.close()
        await listener.close()

    run(work())


def refused(
    here: TcpNetwork, there: TcpNetwork, *, by_way_of: Callable[[str], Awaitable[str]]
) -> None:
    async def work() -> None:
        server = Server()
        listener = await here.listen(server.accept)
        with pytest.raises(PeerLost):
            await there.connect(await by_way_of(listener.address), "slot-1", Peer())
        assert server.peers == []
        await listener.close()

    run(work())


async def directly(address: str) -> str:
    return address


def test_the_secret_alone_lets_nobody_in_where_links_are_encrypted() -> None:
    authority = Authority()
    driver = a_network(keys=authority.issue("driver"))
    plain = TcpNetwork(secret=SECRET, host="127.0.0.1", answer_timeout_s=1.0)
    for stranger in (plain, a_network(keys=Authority().issue("slot"))):
        refused(driver, stranger, by_way_of=directly)
    refused(plain, a_network(keys=authority.issue("slot")), by_way_of=directly)


def test_a_certificate_alone_lets_nobody_in() -> None:
    authority = Authority()
    stranger = TcpNetwork(
        secret=b"x" * 32, host="127.0.0.1", answer_timeout_s=LIMIT_S, keys=authority.issue("slot")
    )
    refused(a_network(keys=authority.issue("driver")), stranger, by_way_of=directly)


def test_proofs_cannot_be_passed_on_by_another_with_a_certificate() -> None:
    # Certificates of one's own may come from an authority that signs for many others.
    authority = Authority()
    driver, between = authority.issue("driver"), authority.issue("between")

    def proved(*, as_seen_by_the_slot: Keys) -> bool:
        binding = own_fingerprint(driver)
        there = Handshake(secret=SECRET, server=True, name="", nonce=b"1" * 16, binding=binding)
        binding = own_fingerprint(as_seen_by_the_slot)
        here = Handshake(secret=SECRET, server=False, name="s", nonce=b"2" * 16, binding=binding)
        proof = here.receive(there.greeting() or b"")
        here.receive(there.receive(proof or b"") or b"")
        return here.done

    assert proved(as_seen_by_the_slot=driver)
    with pytest.raises(PeerLost, match="secret"):
        proved(as_seen_by_the_slot=between)


def test_a_sealed_frame_is_good_once_in_its_place_and_as_it_was() -> None:
    sending = Seal(b"k" * 32)
    frames = [body + sending.tag([body]) for body in (b"one", b"two", b"three")]
    receiving = Seal(b"k" * 32)
    assert receiving.opened(memoryview(frames[0])) == b"one"
    for wrong in (frames[0], frames[2], frames[1][:-1], b"x" + frames[1][1:], b""):
        fresh = Seal(b"k" * 32)
        fresh.opened(memoryview(frames[0]))
        with pytest.raises(PeerLost, match="was changed on its way"):
            fresh.opened(memoryview(wrong))
    with pytest.raises(PeerLost):
        Seal(b"other").opened(memoryview(frames[0]))
    assert len(frames[0]) == 3 + TAG_BYTES


# --- who gets which keys --------------------------------------------------------------------------

ADDRESS = "192.0.2.7"


def test_links_are_encrypted_where_they_leave_the_machine_unless_told_otherwise() -> None:
    for protection, host, announce, encrypted_, sealed_ in [
        (LinkProtection.AUTO, "127.0.0.1", None, False, False),
        (LinkProtection.AUTO, "127.0.0.1", "[::1]:50100", False, False),
        (LinkProtection.AUTO, "127.0.0.1", "bastion:50100", True, False),
        (LinkProtection.AUTO, ADDRESS, None, True, False),
        (LinkProtection.AUTO, ADDRESS, "127.0.0.1", True, False),
        (LinkProtection.AUTO, "0.0.0.0", None, True, False),
        (LinkProtection.ON, "localhost", None, True, False),
        (LinkProtection.OFF, "::1", None, False, False),
        (LinkProtection.OFF, ADDRESS, None, False, True),
        (LinkProtection.OFF, "127.0.0.1", ADDRESS, False, True),
    ]:
        security = LinkSecurity(LinkSettings(protection), host, announce=announce)
        told = security.invite(SlotInvitation("driver:1", security.secret), "slot-7")
        assert (told.keys is not None, told.sealed, told.request) == (encrypted_, sealed_, "slot-7")
    assert not is_loopback("driver.example")


def test_each_slot_gets_keys_of_its_own_that_outlive_the_job_and_are_told_to_nobody() -> None:
    security = LinkSecurity(LinkSettings(LinkProtection.ON), "127.0.0.1")
    invitation = SlotInvitation("driver:1", security.secret)
    first, second = (security.invite(invitation, "slot").keys for _ in range(2))
    assert first is not None and second is not None and first.own != second.own
    assert first.trusted == second.trusted and "PRIVATE" not in repr(
        security.invite(invitation, "slot")
    )
    certificate = x509.load_pem_x509_certificates(first.own)[0]
    assert certificate.not_valid_before_utc.year == 2000
    assert certificate.not_valid_after_utc.year == 9999


def test_two_runs_do_not_trust_each_other() -> None:
    one, other = (LinkSecurity(LinkSettings(LinkProtection.ON), "127.0.0.1") for _ in range(2))
    told = other.invite(SlotInvitation("driver:1", other.secret), "slot")
    stranger = TcpNetwork(
        secret=one.secret, host="127.0.0.1", keys=told.keys, answer_timeout_s=LIMIT_S
    )
    refused(one.network(), stranger, by_way_of=directly)


def of_ones_own(folder: Path, keystore: str) -> dict[str, str]:
    authority = OwnAuthority(folder)
    return {
        "security.ssl.internal.enabled": "true",
        "security.ssl.internal.keystore": str(authority.issue(keystore, password="open")),
        "security.ssl.internal.keystore-password": "open",
        "security.ssl.internal.truststore": str(authority.pem),
    }


@pytest.mark.parametrize("keystore", ["own.pem", "own.p12"])
def test_certificates_of_ones_own_serve_driver_and_slots(keystore: str, tmp_path: Path) -> None:
    settings = link_settings(Configuration.from_dict(of_ones_own(tmp_path, keystore)))
    security = LinkSecurity(settings, "127.0.0.1")
    told = security.invite(SlotInvitation("driver:1", security.secret), "slot")

    async def work() -> None:
        server, peer = Server(), Peer()
        listener = await security.network().listen(server.accept)
        slot = TcpNetwork(secret=told.secret, host="127.0.0.1", keys=told.keys)
        wire = await slot.connect(listener.address, "slot-1", peer)
        theirs = await server.joined()
        assert theirs.wire is not None and theirs.wire.peer == "slot-1"
        wire.close()
        await theirs.ended()
        await peer.ended()
        await listener.close()

    run(work())


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    own = of_ones_own(tmp_path, "own.pem")
    without = {key: value for key, value in own.items() if not key.endswith("truststore")}
    for given, told in [
        ({**own, "tidegate.security.internal": "off"}, "internal is off"),
        (without, "truststore is not"),
        ({**own, "security.ssl.internal.enabled": "false"}, "enabled is not true"),
    ]:
        with pytest.raises(ConfigError, match=told):
            link_settings(Configuration.from_dict(given))


def test_a_store_of_java_is_refused_with_what_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "own.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    stores = TlsStores(str(store), truststore=str(store))
    with pytest.raises(ConfigError, match="JKS") as refused:
        LinkSecurity(LinkSettings(LinkProtection.ON, stores), "127.0.0.1")
    assert f"-srckeystore {store}" in refused.value.remedy
    assert refused.value.where == "security.ssl.internal.keystore"


def test_keys_pass_over_a_file_where_the_system_has_none_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.memfd_create")
    authority = Authority()
    assert isinstance(authority.issue("one"), Keys)
    a_network(keys=authority.issue("one"))
