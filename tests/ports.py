"""Ports for servers that are told theirs: free ones, and none that the system gives to whoever asks for any."""

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """So many in a row on the loopback."""
    lowest, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    while True:
        first = random.SystemRandom().randrange(int(lowest) // 2, int(lowest) - count)
        ports = [*range(first, first + count)]
        with ExitStack() as stack, suppress(OSError):
            for port in ports:
                stack.enter_context(socket.socket()).bind((HOST, port))
            return ports
