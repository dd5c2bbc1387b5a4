"""Where a server listens: an address that is had or refused in one clear sentence."""

import socket

from agentcache.errors import CacheError, Kind


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket bound to an address, not listening yet; port 0 takes a free one.

    Errors   CacheError(BAD_CONFIG)
    """
    listener = _socket(host)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        said = (
            f"cannot listen on {host} port {port} ({error.strerror}); choose another with --host and --port"
        )
        raise CacheError(Kind.BAD_CONFIG, said) from None
    return listener


def bind_shared(host: str, port: int) -> socket.socket:
    """The same for several processes: each that calls this with the same port gets its share of the connections.

    Caller   has the port for itself: whoever may run as this user could share it
    Errors   CacheError(BAD_CONFIG)
    """
    listener = _socket(host)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CacheError(
            Kind.BAD_CONFIG, f"cannot share {host} port {port} ({error.strerror}); choose another with --port"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """The address that a client on this machine uses."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _socket(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol by name: without it asyncio leaves TCP_NODELAY unset, and short answers wait 40 ms for a late ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return listener
