"""EXAMPLE: a small in-memory message broker that embeds the agent, for demonstrations; not for real messages.

    python demo/memory_broker.py serve --name broker-a --port 10911 --topic orders --name-servers 127.0.0.1:9876
    python demo/memory_broker.py produce --name-servers 127.0.0.1:9876 --topic orders hello
    python demo/memory_broker.py consume --name-servers 127.0.0.1:9876 --topic orders

The protocol has one JSON object per line: {"op": "produce", "topic": T, "queue": Q, "body": B} is answered with
{"offset": N}, {"op": "consume", "topic": T, "queue": Q, "offset": N} with {"messages": [...], "next": N}, and
{"op": "create", "topic": T, "queues": N} with {"ok": true}; a failed request with {"error": TEXT}. Messages live in
memory and die with the process; a queue keeps its last 10,000.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteClient
from namesrv_remoting.codes import MASTER_ID, PERM_READ, PERM_WRITE
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.address import parse_address

KEPT_MESSAGES: Final = 10_000
_LONGEST_LINE: Final = 1 << 20


class RefusedError(Exception):
    """A refused request; the peer gets the message of the exception."""


class Queue:
    """The last messages of one queue, by offset."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque(maxlen=KEPT_MESSAGES)
        self.next_offset = 0

    def append(self, body: str) -> int:
        """Keep a message, and return its offset."""
        self._messages.append(body)
        self.next_offset += 1
        return self.next_offset - 1

    def since(self, offset: int, limit: int = 100) -> tuple[list[str], int]:
        """Messages from an offset on, and the offset of the next request."""
        first = self.next_offset - len(self._messages)
        start = max(offset, first)
        found = list(self._messages)[start - first : start - first + limit]
        return found, start + len(found)


class MemoryBroker:
    """Topics in memory, served over TCP, registered by an agent."""

    def __init__(self, settings: AgentSettings, topics: Sequence[TopicConfig]) -> None:
        self.agent = BrokerAgent(settings, topics, state=self.state)
        self._queues: dict[tuple[str, int], Queue] = {}

    def state(self) -> Mapping[str, int]:
        """The state that every heartbeat reports to the NameServers."""
        return {"queues": len(self._queues), "messages": sum(queue.next_offset for queue in self._queues.values())}

    async def response(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The response to a request. Raises RefusedError."""
        match asked.get("op"):
            case "produce":
                return {"offset": self._queue(asked, PERM_WRITE).append(str(asked.get("body", "")))}
            case "consume":
                messages, following = self._queue(asked, PERM_READ).since(int(asked.get("offset", 0)))
                return {"messages": messages, "next": following}
            case "create":
                queues = int(asked.get("queues", 4))
                # create_topic refuses an invalid name.
                await self.agent.create_topic(TopicConfig(asked.get("topic", ""), queues, queues))
                return {"ok": True}
            case other:
                raise RefusedError(f"unknown op {other!r} (one of produce, consume, create)")

    def _queue(self, asked: Mapping[str, Any], perm: int) -> Queue:
        name, number = asked.get("topic", ""), int(asked.get("queue", 0))
        topic = self.agent.topics.get(name)
        if topic is None:
            raise RefusedError(f"topic {name!r} does not exist")
        if not topic.perm & perm:
            raise RefusedError(f"topic {name!r} has perm {topic.perm}")
        queues = topic.write_queue_nums if perm == PERM_WRITE else topic.read_queue_nums
        if not 0 <= number < queues:
            raise RefusedError(f"topic {name!r} has no queue {number}")
        return self._queues.setdefault((name, number), Queue())

    async def serve_peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection until it ends or a line is too long; cancelled when the broker stops."""
        with contextlib.suppress(
            ConnectionError, asyncio.CancelledError, asyncio.LimitOverrunError, asyncio.IncompleteReadError
        ):
            while line := await reader.readuntil():
                try:
                    asked = json.loads(line)
                    if not isinstance(asked, dict):
                        raise RefusedError("not an object")
                    response = await self.response(asked)
                # json parses Infinity, which int() refuses, and raises RecursionError for deep nesting.
                except (RefusedError, ValueError, TypeError, OverflowError, RecursionError) as error:
                    response = {"error": str(error)}
                writer.write(json.dumps(response).encode() + b"\n")
                await writer.drain()
        writer.close()


async def serve(options: argparse.Namespace) -> int:
    """Run a broker until SIGTERM or SIGINT, which unregister it at once, or SIGUSR1, which drains it first."""
    loop = asyncio.get_running_loop()
    ends, drains = asyncio.Event(), asyncio.Event()
    for number, event in ((signal.SIGTERM, ends), (signal.SIGINT, ends), (signal.SIGUSR1, drains)):
        loop.add_signal_handler(number, event.set)
    ended, drained = asyncio.ensure_future(ends.wait()), asyncio.ensure_future(drains.wait())
    listening = socket.create_server((options.host, options.port))
    settings = AgentSettings(
        cluster_name=options.cluster,
        broker_name=options.name,
        broker_id=options.id,
        broker_addr=f"{options.advertise or options.host}:{listening.getsockname()[1]}",
        name_servers=options.name_servers,
        client_poll_seconds=options.poll_seconds,
    )
    broker = MemoryBroker(settings, [TopicConfig(name, 4, 4) for name in options.topic])
    server = await asyncio.start_server(broker.serve_peer, sock=listening, limit=_LONGEST_LINE)
    try:
        async with broker.agent as agent:
            print(json.dumps({"event": "serving", "address": settings.broker_addr}), flush=True)
            await asyncio.wait([ended, drained], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                draining = asyncio.ensure_future(agent.drain())
                await asyncio.wait([ended, draining], return_when=asyncio.FIRST_COMPLETED)
                draining.cancel()
    finally:
        # No wait_closed(): from Python 3.12 on it would wait until all peers have disconnected.
        server.close()
    return 0


async def queues_of(options: argparse.Namespace, perm: int) -> list[tuple[str, int]]:
    """(broker address, queue) for each queue of the topic whose broker has a master and the permission."""
    # Without a warm-up the client believes a server that has just started and does not know the topic yet.
    async with RouteClient(ClientSettings(name_servers=options.name_servers, warm_up_seconds=0)) as client:
        found = (await client.route(options.topic)).data
    masters = {group.broker_name: group.broker_addrs.get(MASTER_ID) for group in found.broker_datas}
    return [
        (address, number)
        for queues in found.queue_datas
        if queues.perm & perm and (address := masters.get(queues.broker_name))
        for number in range(queues.write_queue_nums if perm == PERM_WRITE else queues.read_queue_nums)
    ]


async def ask(address: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to a broker and return its response. Raises RefusedError with the reason of the broker."""
    host, port = parse_address(address)
    reader, writer = await asyncio.open_connection(host, port, limit=_LONGEST_LINE)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise RefusedError(f"broker {address} closed the connection")
    response: dict[str, Any] = json.loads(line)
    if "error" in response:
        raise RefusedError(response["error"])
    return response


async def produce(options: argparse.Namespace) -> int:
    """Send the messages round robin to the queues of the topic."""
    queues = await queues_of(options, PERM_WRITE)
    if not queues:
        raise RefusedError(f"no queue of {options.topic!r} can be written to")
    for number, body in enumerate(options.message):
        address, queue = queues[number % len(queues)]
        response = await ask(address, {"op": "produce", "topic": options.topic, "queue": queue, "body": body})
        print(json.dumps({"broker": address, "queue": queue, **response}))
    return 0


async def consume(options: argparse.Namespace) -> int:
    """Print the messages in the topic's queues."""
    for address, queue in await queues_of(options, PERM_READ):
        response: dict[str, Any] = {"messages": [""], "next": 0}
        while response["messages"]:
            question = {"op": "consume", "topic": options.topic, "queue": queue, "offset": response["next"]}
            response = await ask(address, question)
            for body in response["messages"]:
                print(json.dumps({"broker": address, "queue": queue, "body": body}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description="EXAMPLE: a small in-memory broker that embeds the broker agent.")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="run a broker")
    serving.add_argument("--cluster", default="example")
    serving.add_argument("--name", default="broker-a")
    serving.add_argument("--id", type=int, default=MASTER_ID, help="0 for a master, more for a slave")
    serving.add_argument("--host", default="127.0.0.1", help="listen address")
    serving.add_argument("--advertise", default="", help="host name for clients (default: --host)")
    serving.add_argument("--port", type=int, default=0, help="0: a free port")
    serving.add_argument("--topic", action="append", default=[], help="may be repeated")
    serving.add_argument(
        "--poll-seconds", type=float, default=30.0, help="poll interval of the clients, for which a drain waits"
    )
    for name, what in (("produce", "send messages"), ("consume", "print the messages of a topic")):
        command = commands.add_parser(name, help=what)
        command.add_argument("--topic", required=True)
        if name == "produce":
            command.add_argument("message", nargs="+")
    for command in commands.choices.values():
        command.add_argument("--name-servers", default="", help="a list, env:, file:, dns: or http: (default: env)")
    options = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    work = {"serve": serve, "produce": produce, "consume": consume}[options.command]
    try:
        return asyncio.run(work(options))
    except (RefusedError, RemotingError, ValueError, OSError) as error:
        sys.stderr.write(f"memory_broker: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
