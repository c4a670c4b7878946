"""Addresses of Ray clusters: what does not answer like Ray is refused without asking Ray."""

import socket
from contextlib import contextmanager
from threading import Thread

import pytest

from fedrf.runtime.ray import address as module
from fedrf.runtime.ray import check_address

SETTINGS_FRAME = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 64, 0, 0))


@contextmanager
def server(answer):
    """Listen on this machine and give every client the same answer; with None, none at all. Yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            client, _ = listener.accept()
            client.recv(100)
            client.sendall(answer)
            client.close()

        if answer is not None:
            Thread(target=serve, daemon=True).start()
        yield f"ray://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_of_grpc_is_accepted():
    with server(SETTINGS_FRAME) as address:
        check_address(address)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "timed out"),
        (b"", "another program answers there"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program answers there; the port of `ray start` is 6379"),
    ],
    ids=["silent", "closed", "dashboard"],
)
def test_other_servers_are_refused(monkeypatch, answer, why):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    with server(answer) as address, pytest.raises(ValueError, match=f"no Ray cluster answers at '{address}' .{why}"):
        check_address(address)


def test_nothing_listens():
    with server(None) as address:
        pass
    for closed in (address, address.removeprefix("ray://")):
        with pytest.raises(ValueError, match=r"\(Connection refused\); start one with `ray start --head`, or use this"):
            check_address(closed)


def test_an_encrypted_connection_is_left_to_ray(monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with server(None) as address:
        check_address(address)


@pytest.mark.parametrize("address", ["nonsense", "ray://head", "head:", ":6379", "http://127.0.0.1:8265", "head:six"])
def test_what_is_no_address_is_refused_with_the_allowed_forms(address):
    with pytest.raises(ValueError, match=f"'{address}' is not an address of a Ray cluster; allowed: HOST:PORT, ray://"):
        check_address(address)
