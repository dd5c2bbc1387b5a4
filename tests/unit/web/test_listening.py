"""Where a server listens."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.web.listening import bind, bind_shared, url_of

Binding = Callable[[str, int], socket.socket]


@pytest.mark.asyncio
@pytest.mark.parametrize("binding", [bind, bind_shared])
async def test_short_answers_leave_at_once(binding: Binding) -> None:
    """Without TCP_NODELAY the second half of an answer waits for the ACK of the first: 40 ms on Linux."""
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    server = await asyncio.start_server(connected, sock=binding("127.0.0.1", 0))
    async with server:
        host, port = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port)
        assert await told
        writer.close()
        await writer.wait_closed()


def test_an_address_that_is_taken_is_said() -> None:
    with closing(bind("127.0.0.1", 0)) as first:
        first.listen()
        host, port = first.getsockname()
        with pytest.raises(CacheError, match="choose another") as caught:
            bind(host, port)
        assert caught.value.kind is Kind.BAD_CONFIG
        assert url_of(first) == f"http://127.0.0.1:{port}"


def test_several_may_share_a_port_that_all_share() -> None:
    with closing(bind_shared("127.0.0.1", 0)) as first:
        first.listen()
        with closing(bind_shared(*first.getsockname())) as second:
            second.listen()
            assert url_of(second) == url_of(first)
