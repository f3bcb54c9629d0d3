"""The proof that both ends of a link know the job's secret."""

import pickle

import pytest

from tidegate.errors import PeerLost
from tidegate.transport.handshake import MAGIC, NONCE_BYTES, Handshake

SECRET = b"s" * 32


def server(secret: bytes = SECRET, nonce: bytes = b"1" * NONCE_BYTES) -> Handshake:
    return Handshake(secret=secret, server=True, name="", nonce=nonce)


def client(
    secret: bytes = SECRET, name: str = "slot-1", nonce: bytes = b"2" * NONCE_BYTES
) -> Handshake:
    return Handshake(secret=secret, server=False, name=name, nonce=nonce)


def sent(frame: bytes | None) -> bytes:
    assert frame is not None
    return frame


def test_both_sides_prove_the_secret_and_the_server_learns_the_name() -> None:
    there, here = server(), client(name="slot-ü")
    answer = sent(here.receive(sent(there.greeting())))
    assert not there.done and not here.done
    proof = sent(there.receive(answer))
    assert there.done and there.peer == "slot-ü"
    assert here.receive(proof) is None
    assert here.done


def test_only_the_server_greets() -> None:
    assert client().greeting() is None


def test_a_client_with_another_secret_is_refused() -> None:
    there, here = server(), client(secret=b"x" * 32)
    answer = sent(here.receive(sent(there.greeting())))
    with pytest.raises(PeerLost, match="does not know the job's secret"):
        there.receive(answer)
    assert not there.done


def test_a_server_with_another_secret_is_refused() -> None:
    """A slot must not take work from a driver that is not its own."""
    there, here = server(secret=b"x" * 32), client()
    here.receive(sent(there.greeting()))
    with pytest.raises(PeerLost, match="secret"):
        here.receive(b"p" * 32)
    assert not here.done


def test_a_name_that_was_changed_on_the_way_is_refused() -> None:
    there, here = server(), client(name="slot-1")
    answer = sent(here.receive(sent(there.greeting())))
    with pytest.raises(PeerLost, match="secret"):
        there.receive(answer.replace(b"slot-1", b"slot-2"))


def test_an_answer_to_an_older_greeting_is_refused() -> None:
    here = client()
    recorded = sent(here.receive(sent(server(nonce=b"1" * NONCE_BYTES).greeting())))
    with pytest.raises(PeerLost, match="secret"):
        server(nonce=b"9" * NONCE_BYTES).receive(recorded)


def test_a_client_cannot_be_answered_with_its_own_proof() -> None:
    there, here = server(), client(name="")
    answer = sent(here.receive(sent(there.greeting())))
    with pytest.raises(PeerLost, match="secret"):
        here.receive(answer[-32:])


@pytest.mark.parametrize(
    "frame", [b"", b"HTTP/1.1 400 Bad Request", MAGIC, MAGIC + b"short", b"TGW0" + b"n" * 60]
)
def test_another_protocol_is_refused_by_both_sides(frame: bytes) -> None:
    for side in (server(), client()):
        with pytest.raises(PeerLost, match=r"protocol|too short"):
            side.receive(frame)


def test_a_name_longer_than_the_frame_is_refused() -> None:
    frame = MAGIC + b"2" * NONCE_BYTES + b"\xff\xff" + b"x" * 40
    with pytest.raises(PeerLost):
        server().receive(frame)


def test_nothing_is_unpickled_before_the_proof(tmp_path: object) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("unpickled before the secret was proved",))

    with pytest.raises(PeerLost):
        server().receive(MAGIC + b"2" * NONCE_BYTES + pickle.dumps(Bomb()))
