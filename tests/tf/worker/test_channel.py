"""Messages of a trial, read back as the parent reads them."""

from __future__ import annotations

import json
import socket

import pytest

from xttsbench.records.trial import TrialSpec
from xttsbench.worker.channel import Channel


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Channel(theirs)


def test_a_specification_arrives_whole(ends):
    ours, channel = ends
    spec = TrialSpec(trial_id="000-ladder", kind="ladder", target="t:t", kwargs={"text": "a\nb\u2028ü"})
    ours.sendall(spec.model_dump_json().encode() + b"\n")
    assert channel.receive(TrialSpec) == spec


def test_a_message_is_a_line(ends):
    ours, channel = ends
    channel.phase("as_is")
    channel.note("two\nlines")
    first, second, rest = ours.recv(4096).split(b"\n")
    assert json.loads(first) == {"phase": "as_is"}
    assert json.loads(second) == {"note": "two\nlines"}
    assert rest == b""


def test_nan_is_refused_rather_than_sent_as_no_json(ends):
    with pytest.raises(ValueError, match="JSON"):
        ends[1].part("setup_s", float("nan"))


def test_a_parent_that_is_gone_is_an_os_error(ends):
    ends[0].close()
    with pytest.raises(OSError, match=r"pipe|reset"):
        ends[1].phase("as_is")
