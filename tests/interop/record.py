"""Records the requests of real brokers to Apache's NameServer, and its responses, into tests/golden/recordings.

    sh tests/interop/setup.sh && python -m tests.interop.record [NAME...]

Each recording is one scenario of tests/golden, with a file beside it that names its origin. Brokers listen on fixed
ports, so that a new recording differs from the old one mainly in numbers and times.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from namesrv_remoting.codes import RequestCode
from namesrv_runtime.address import parse_address
from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.broker import Broker, BrokerPeer
from tests.interop.peers.place import ROOT
from tests.interop.peers.recorder import Exchange, Recorder
from tests.interop.peers.route import brokers_of, topics_of
from tests.interop.peers.waiting import until
from tests.support.peer import Peer

RECORDINGS: Final = ROOT / "tests" / "golden" / "recordings"
PORTS: Final = (10911, 20911)
VERSIONS: Final[Mapping[BrokerPeer, str]] = {"broker-5": "5.3.3", "broker-4": "4.9.7"}

REGISTER: Final = 103
ROUTE: Final = 105
CLUSTERS: Final = 106
TOPICS: Final = 206
QUERY_VERSION: Final = 322

# A topic that is created while the brokers run.
MADE: Final = "made-by-hand"
# Number of equal requests, such as heartbeats, that a recording keeps.
KEPT: Final = 2


@dataclass(frozen=True)
class Recording:
    """The brokers and steps of one recording."""

    name: str
    peer: BrokerPeer
    about: str
    settings: Mapping[str, object] = field(default_factory=dict)
    # Apache's NameServer does not understand this broker, so the recording has no requests for its tables.
    is_refused: bool = False


_ACTING: Final = {"enableSlaveActingMaster": "true"}

_BY_DEFAULT: Final = "a master and a slave with the settings that brokers have by default"
_ACT: Final = "a master and a slave that may act in its place, with"
_ASK: Final = "a master and a slave that ask whether they have to register"

ALL: Final = (
    Recording("broker-5", "broker-5", _BY_DEFAULT),
    Recording("broker-5-query-version", "broker-5", _ASK, {"forceRegister": "false"}),
    Recording(
        "broker-5-compressed",
        "broker-5",
        "a master and a slave that compress what they register, and forget to say so",
        {"compressedRegister": "true"},
        is_refused=True,
    ),
    Recording(
        "broker-5-acting-master", "broker-5", f"{_ACT} the heartbeats and questions for older NameServers", _ACTING
    ),
    Recording(
        "broker-5-heartbeats",
        "broker-5",
        f"{_ACT} heartbeats and questions of their own",
        {**_ACTING, "compatibleWithOldNameSrv": "false"},
    ),
    Recording("broker-4", "broker-4", _BY_DEFAULT),
    Recording(
        "broker-4-compressed",
        "broker-4",
        f"{_ASK}, and compress what they register",
        {"forceRegister": "false", "compressedRegister": "true"},
    ),
)

STEPS: Final = (
    "the master starts, then the slave",
    f"a topic, {MADE}, is made on the master with mqadmin",
    "the slave is stopped, then the master",
    "between these, clusters, topics and routes are asked for on a connection of their own",
)


def record(recording: Recording, home: Path, ports: Sequence[int] = PORTS) -> list[dict[str, Any]]:
    """Record the steps of a scenario; this takes about a minute."""
    with ApacheNameServer(home / "namesrv") as name_server, Recorder(name_server.booted().address) as recorder:
        _play(recording, home, ports, name_server.address, recorder)
        exchanges = recorder.exchanges()
    kept = enumerate(_without_repetitions(exchanges), start=1)
    return [_step(recording.name, number, exchange) for number, exchange in kept]


def _play(recording: Recording, home: Path, ports: Sequence[int], name_server: str, recorder: Recorder) -> None:
    with MqAdmin(home / "mqadmin", name_server) as admin, _broker(recording, home, ports, recorder, 0) as master:
        until(lambda: recorder.exchanges(REGISTER, brokerId="0"))
        with _broker(recording, home, ports, recorder, 1) as slave:
            until(lambda: recorder.exchanges(REGISTER, brokerId="1"))
            _ask(recording, recorder)
            admin.make_topics(master.booted().address, MADE, read=3, write=2)
            until(lambda: recording.is_refused or MADE in topics_of(name_server))
            count = _requests_of_slave(recorder)
            until(lambda: _requests_of_slave(recorder) > count)
            _ask(recording, recorder)
            slave.booted().stop()
        until(lambda: all(1 not in members for members in brokers_of(name_server).values()))
        _ask(recording, recorder)
        master.stop()
    until(lambda: not brokers_of(name_server) and not topics_of(name_server))
    _ask(recording, recorder)


def _broker(recording: Recording, home: Path, ports: Sequence[int], recorder: Recorder, broker_id: int) -> Broker:
    return Broker(
        home / f"broker-{broker_id}",
        [recorder.address],
        peer=recording.peer,
        broker_id=broker_id,
        role="SLAVE" if broker_id else "ASYNC_MASTER",
        port=ports[broker_id],
        settings=recording.settings,
    )


def _requests_of_slave(recorder: Recorder) -> int:
    return sum(len(recorder.exchanges(code, brokerId="1")) for code in (REGISTER, QUERY_VERSION))


def _ask(recording: Recording, recorder: Recorder) -> None:
    """Record requests for the current content of the tables."""
    if recording.is_refused:
        return
    with Peer(parse_address(recorder.address)) as peer:
        peer.ask(CLUSTERS)
        peer.ask(TOPICS)
        for topic in (MADE, "TBW102"):
            peer.ask(ROUTE, {"topic": topic})


def _without_repetitions(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """The exchanges, with only the first ones of equal requests on one connection."""
    seen: Counter[str] = Counter()
    for exchange in exchanges:
        answer = exchange.answer or {}
        content = [
            exchange.connection,
            {**exchange.header, "opaque": 0},
            exchange.body.hex(),
            {**answer.get("header", {}), "opaque": 0},
            answer.get("body"),
        ]
        key = json.dumps(content, sort_keys=True)
        seen[key] += 1
        if seen[key] <= KEPT:
            yield exchange


def _step(scenario: str, number: int, exchange: Exchange) -> dict[str, Any]:
    fields = exchange.ext_fields
    about = fields.get("topic") or " ".join(fields[name] for name in ("brokerName", "brokerId") if name in fields)
    return {
        "scenario": scenario,
        "step": number,
        "label": f"{exchange.code} {RequestCode(exchange.code).name} {about}".rstrip(),
        "connection": exchange.connection,
        "request": exchange.request.hex(),
        "opaque": exchange.opaque,
        "response": "none" if exchange.is_oneway else exchange.answer,
    }


def _provenance(recording: Recording) -> str:
    """The TOML file with the origin of a recording."""
    origin = {
        "about": recording.about,
        "product": "Apache RocketMQ broker, from its package org.apache.rocketmq:rocketmq-broker",
        "version": VERSIONS[recording.peer],
        "answered_by": "Apache RocketMQ NameServer 5.3.3, from its package org.apache.rocketmq:rocketmq-namesrv",
        "done": list(STEPS),
    }
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in origin.items()]
    settings = {"registerNameServerPeriod": 10000, **recording.settings}
    lines += ["\n", "[settings]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())]
    return "".join(lines)


def write(recording: Recording, directory: Path, ports: Sequence[int] = PORTS) -> Path:
    """Record into a directory; returns the file of the steps."""
    with tempfile.TemporaryDirectory() as home:
        steps = record(recording, Path(home), ports)
    lines = [json.dumps(step, separators=(",", ":"), ensure_ascii=False) + "\n" for step in steps]
    path = directory / f"{recording.name}.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    path.with_suffix(".toml").write_text(_provenance(recording), encoding="utf-8")
    return path


def main(names: Sequence[str]) -> int:
    """Write the recordings of these names, or all."""
    unknown = set(names) - {recording.name for recording in ALL}
    if unknown:
        sys.stderr.write(f"no such recording: {', '.join(sorted(unknown))}\n")
        return 2
    RECORDINGS.mkdir(exist_ok=True)
    for recording in ALL:
        if not names or recording.name in names:
            sys.stdout.write(f"{write(recording, RECORDINGS)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
