"""Addresses: the network interface of this node that leads to the other ranks.

Sockets are bound to that interface only, which on one node is the loopback: nobody else reaches
them.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_GET_ADDRESS: Final = 0x8915  # SIOCGIFADDR of Linux
_VARIABLE: Final = "GLOO_SOCKET_IFNAME"


def find_address(peer: str | None) -> str:
    """Return this node's address on the way to a peer.

    Only the routing table is used; nothing is sent.

    Args:
        peer: Name or address of another node, or of this one; None if there is no other.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer or socket.gethostname(), 9))
        except OSError:  # names of nodes need not resolve
            return socket.gethostname()
        return str(probe.getsockname()[0])


def listen(address: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at an address of this node, or on all if it has no such address.

    An address may lead to this node without being its own, such as the address of a service.
    """
    try:
        return socket.create_server((address, port), backlog=4096)
    except OSError:
        return socket.create_server(("", port), backlog=4096)


@contextmanager
def use_interface(address: str) -> Iterator[None]:
    """Make gloo connect ranks through the interface of an address, unless the user has named one.

    By default it takes the interface of the host's name, which may be another one or none.
    """
    name = None if _VARIABLE in os.environ else _find_interface(address)
    if name is None:
        yield
        return
    os.environ[_VARIABLE] = name
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


def _find_interface(address: str) -> str | None:
    try:
        from fcntl import ioctl

        wanted = socket.inet_aton(address)
    except (ImportError, OSError):
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = ioctl(probe.fileno(), _GET_ADDRESS, request)
            except OSError:
                continue  # it has no address
            if answer[20:24] == wanted:
                return name
    return None
