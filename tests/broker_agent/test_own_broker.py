"""The broker of an agent, and its state in heartbeats."""

import asyncio
import logging
from typing import Any

import pytest

from namesrv_broker_agent.own_broker import OwnBroker
from namesrv_broker_agent.topics import BrokerTopics
from tests.support.agents import agent_settings


def fails() -> Any:
    """A callback with a bug."""
    raise ZeroDivisionError("in the broker's own code")


def is_cancelled() -> Any:
    """A callback that reads the result of a cancelled task."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "state",
    [
        *(fails, is_cancelled, lambda: None, lambda: [1], lambda: {"nested": {}}, lambda: {"list": [1]}),
        *(lambda: {5: 1}, lambda: {"what": object()}, lambda: {"large": 1 << 64}, lambda: {"text": "\ud800"}),
        # with the envelope a byte above the server's limit
        lambda: {"long": "x" * 16_369},
    ],
)
def test_invalid_state_is_left_out(state: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The heartbeat has no body and the log the reason: a refused heartbeat would lead to an eviction."""
    assert OwnBroker(agent_settings("127.0.0.1:1"), BrokerTopics(), state).state_body() == b""

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "heartbeat without the broker's state, a flat map of at most 16384 bytes"
    assert record.exc_info is not None
