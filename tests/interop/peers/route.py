"""Requests brokers and topics of a NameServer on the wire."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from namesrv_runtime.address import parse_address
from tests.interop.peers.waiting import until
from tests.support.peer import Peer

_GET_ROUTE: Final = 105
_GET_CLUSTERS: Final = 106
_GET_TOPICS: Final = 206
_NOT_FOUND: Final = 17

# Apache's NameServer writes the keys in the response to 106 without quotes.
_BARE_KEY: Final = re.compile(r"([{,])(-?\d+):")


@dataclass(frozen=True, slots=True)
class Route:
    """The parts of a topic's route that these tests check."""

    # broker name -> id -> address
    brokers: dict[str, dict[int, str]]
    # broker name -> (queues to read, queues to write, permission)
    queues: dict[str, tuple[int, int, int]]
    # The whole response.
    data: dict[str, Any]


def route_of(address: str, topic: str) -> Route | None:
    """The route of a topic; None without a route."""
    with Peer(parse_address(address)) as peer:
        answer = peer.ask(_GET_ROUTE, {"topic": topic})
    if answer.code == _NOT_FOUND:
        return None
    assert answer.code == 0, answer
    data = _read(answer.body)
    return Route(
        {row["brokerName"]: _by_id(row["brokerAddrs"]) for row in data["brokerDatas"]},
        {row["brokerName"]: (row["readQueueNums"], row["writeQueueNums"], row["perm"]) for row in data["queueDatas"]},
        data,
    )


def routes_of(addresses: Sequence[str], topic: str) -> list[Route | None]:
    """The route of a topic on each of these servers."""
    return [route_of(address, topic) for address in addresses]


def until_routed(addresses: Sequence[str], topic: str) -> list[Route]:
    """The route of a topic on each of these servers, as soon as all of them have one."""
    until(lambda: None not in routes_of(addresses, topic))
    return [route for route in routes_of(addresses, topic) if route is not None]


def brokers_of(address: str) -> dict[str, dict[int, str]]:
    """Every broker name that the server knows, with the addresses by id."""
    with Peer(parse_address(address)) as peer:
        table = _read(peer.ask(_GET_CLUSTERS).body)["brokerAddrTable"]
    return {name: _by_id(data["brokerAddrs"]) for name, data in table.items()}


def members_of(addresses: Sequence[str], broker_name: str) -> list[dict[int, str]]:
    """The addresses by id of one broker name, on each of these servers."""
    return [brokers_of(address).get(broker_name, {}) for address in addresses]


def topics_of(address: str) -> set[str]:
    """Every topic that the server knows."""
    with Peer(parse_address(address)) as peer:
        return set(_read(peer.ask(_GET_TOPICS).body)["topicList"])


def _read(body: bytes) -> Any:
    return json.loads(_BARE_KEY.sub(r'\1"\2":', body.decode()))


def _by_id(addresses: dict[str, str]) -> dict[int, str]:
    return {int(broker_id): address for broker_id, address in addresses.items()}
