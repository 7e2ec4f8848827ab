"""A worker's socket: that the parent is gone shows at once, whatever it has sent before."""

from __future__ import annotations

import socket

import pytest

from xttsbench.processes import closed


@pytest.mark.parametrize("sent", [b"", b'{"job": 1}\n'])
def test_a_parent_that_is_gone_is_missed_though_its_job_is_unread(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(sent)
        assert not closed(theirs)
        ours.close()
        assert closed(theirs)
        assert theirs.recv(100) == sent
