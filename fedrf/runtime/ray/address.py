"""Whether a Ray cluster answers at an address, asked before Ray is: Ray itself waits for minutes."""

from __future__ import annotations

import os
import socket

ANSWER_SECONDS = 10.0
# How a client of gRPC begins: the preface of HTTP/2, and a frame of settings (type 4). The server sends the same frame.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4
FORMS = "HOST:PORT, ray://HOST:PORT or auto"


def check_address(address: str) -> None:
    """Raise a `ValueError` if nothing at an address speaks the protocol of Ray."""
    if address in ("auto", "local"):
        return
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("", "ray") or not host or not port.isdecimal():
        raise ValueError(f"--address: {address!r} is not an address of a Ray cluster; allowed: {FORMS}")
    try:
        _greet(host.strip("[]"), int(port), is_client=scheme == "ray")
    except (OSError, OverflowError) as error:
        raise no_answer(address, getattr(error, "strerror", None) or str(error)) from error


def no_answer(address: str, why: str) -> ValueError:
    """Return the error for an address at which no Ray cluster answers."""
    return ValueError(
        f"--address: no Ray cluster answers at {address!r} ({why}); start one with `ray start --head`, or use this "
        "machine, without --address and $RAY_ADDRESS"
    )


def _greet(host: str, port: int, is_client: bool) -> None:
    """Connect and wait for the greeting of a gRPC server; an `OSError` says what went wrong."""
    if not is_client and host in ("localhost", "127.0.0.1", "::1"):
        from ray.util import get_node_ip_address

        host = get_node_ip_address()  # as Ray does
    with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return  # the greeting would have to be encrypted
        connection.sendall(GREETING)
        answer = connection.makefile("rb").read(4)
    if answer[3:] != bytes((SETTINGS,)):
        raise OSError("another program answers there; the port of `ray start` is 6379 by default, that of ray:// 10001")
