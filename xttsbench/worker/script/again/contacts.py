"""Sockets of a script: those of its own processes, which another run has as well, and others, who hear each run.

A socket is a script's own where a process of its session listens at it. Linux names the sockets of the machine, and
those that a process holds, below ``/proc``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from typing import Final

_LISTENS, _CONNECTED = "0A", "01"
_NAMES_ONLY: Final = ("/run/nscd/", "/var/run/nscd/", "/run/systemd/resolve/", "/run/systemd/userdb/")
"""Sockets that only look names up."""


def is_own(address: object) -> bool:
    """Whether nobody but the script's own processes hears what is sent to an address: host and port, or a name."""
    if isinstance(address, str):
        return address.startswith(_NAMES_ONLY) or address.replace("\0", "@") in _own_names()
    if not isinstance(address, tuple):
        return False
    host, port = str(address[0]), int(address[1])
    return _is_here(host) and port in {local for local, _, _ in _tcp(_LISTENS)}


def peers() -> list[str]:
    """``host:port`` of whoever else the script's processes are connected to now, in C++ or in a program, too."""
    ours = {local for local, _, _ in _tcp(_LISTENS)}
    found = {(host, port) for local, host, port in _tcp(_CONNECTED) if local not in ours}
    return sorted(f"{host}:{port}" for host, port in found if not (port in ours and _is_here(host)))


def _is_here(host: str) -> bool:
    """Whether a host is this machine."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return True
    if host in ("", "localhost", socket.gethostname()):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as tried:
        tried.bind((host, 0))  # which takes an address of this machine
        return True
    return False


def _own() -> set[str]:
    """Inodes of the sockets that processes of this session hold."""
    session, found = os.getsid(0), set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.getsid(int(pid)) == session:
                held = f"/proc/{pid}/fd"
                for number in os.listdir(held):
                    with contextlib.suppress(OSError):  # closed meanwhile
                        found.add(os.readlink(f"{held}/{number}").removeprefix("socket:[").rstrip("]"))
    return found


def _own_names() -> set[str]:
    """Names of the UNIX sockets that processes of this session hold."""
    own = _own()
    rows = (line.split(maxsplit=7) for line in _lines("unix"))
    return {row[7].rstrip("\n") for row in rows if len(row) == 8 and row[6] in own}


def _tcp(state: str) -> Iterator[tuple[int, str, int]]:
    """Local port, remote host and remote port of the TCP sockets of this session in that state."""
    own = _own()
    for line in (*_lines("tcp"), *_lines("tcp6")):
        row = line.split()
        if row[3] == state and row[9] in own:
            host, port = row[2].split(":")
            words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
            remote = ipaddress.ip_address(b"".join(words))
            yield int(row[1].split(":")[1], 16), str(getattr(remote, "ipv4_mapped", None) or remote), int(port, 16)


def _lines(name: str) -> list[str]:
    with contextlib.suppress(OSError), open(f"/proc/net/{name}", encoding="utf-8", errors="surrogateescape") as lines:
        return list(lines)[1:]
    return []
