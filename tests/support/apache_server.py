"""Fake Apache NameServers: they close on any header but RocketMQ's, and write responses as Java does."""

import asyncio
import json
from typing import Any

from tests.support.raw_peer import RawPeer
from tests.support.scripted_server import Peer, ScriptedRequest, ScriptedServer, frame

FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# the topic of the route request whose response shows a client whether the server is one of ours
PROBE = "namesrv-protocol-detection"


def apache_route(*names: str, queues: int = 4) -> bytes:
    """A route as Java writes it (fastjson, bare integer keys), over the masters of these brokers."""
    brokers = [
        f'{{"brokerAddrs":{{0:"10.0.0.{ord(name[-1]) - ord("a") + 1}:10911"}},"brokerName":"{name}",'
        f'"cluster":"cluster-1","enableActingMaster":false}}'
        for name in names
    ]
    rows = [
        {"brokerName": name, "perm": 6, "readQueueNums": queues, "topicSysFlag": 0, "writeQueueNums": queues}
        for name in names
    ]
    return (
        f'{{"brokerDatas":[{",".join(brokers)}],"filterServerTable":{{}},"queueDatas":{json.dumps(rows)}}}'
    ).encode()


class ApacheServer(ScriptedServer):
    """Responds to 105 with the routes of the test; an async context manager that listens on a free port."""

    def __init__(self) -> None:
        super().__init__()
        # topic -> body of its response; None: no response at all; int: an error code; a missing topic does not exist
        self.routes: dict[str, bytes | int | None] = {}
        # (code, topic) of each request
        self.requests: list[tuple[int, str]] = []
        # connections closed because of an invalid header
        self.refused = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self.address} | {len(self.routes)} topics | {len(self.requests)} asked]>"

    @property
    def topics_asked(self) -> list[str]:
        return [topic for code, topic in self.requests if code == 105 and topic != PROBE]

    def _take(self, peer: Peer) -> None:
        task = asyncio.ensure_future(self._serve(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, peer: Peer) -> None:
        try:
            while isinstance((request := await peer.receive()).header, dict):
                topic = str((request.header.get("extFields") or {}).get("topic"))
                answer = await self._answer(request, topic)
                # A test that waits for the request may change the route only after this response was made.
                self.requests.append((request.code, topic))
                peer.send(answer)
            self.refused += 1
        except (OSError, EOFError):
            pass
        finally:
            peer.writer.transport.abort()

    async def _answer(self, request: ScriptedRequest, topic: str) -> bytes:
        if request.code != 105:
            return response_to(request, 3, f" request type {request.code} not supported")
        found = self.routes.get(topic, 17)
        if found is None:
            return b""
        if isinstance(found, bytes):
            return response_to(request, body=found)
        none = f"No topic route info in name server for the topic: {topic}\n{FAQ}"
        return response_to(request, found, none if found == 17 else "a bug")


class ApacheFront(ApacheServer):
    """A proxy that makes one of our servers look like Apache's; some codes get a response from here."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__()
        self._target = target
        # code -> body of a successful response; other codes are forwarded
        self.bodies: dict[int, bytes] = {}
        # code -> remark of an error response
        self.remarks: dict[int, str] = {}

    @property
    def asked(self) -> list[tuple[int, int]]:
        """(serialize type, code) of each request; those refused for their type come first."""
        return [(77, 0)] * self.refused + [(0, code) for code, _ in self.requests]

    async def _answer(self, request: ScriptedRequest, topic: str) -> bytes:
        if request.code in self.bodies:
            return response_to(request, body=self.bodies[request.code])
        if request.code in self.remarks:
            return response_to(request, 1, self.remarks[request.code])
        ours = await RawPeer.connect(self._target)
        try:
            answer = await ours.ask(frame(request.header, request.body))
        finally:
            ours.close()
        header = {**answer.header, "language": "JAVA"}
        if remark := header.get("remark"):
            # Further lines are our server's own.
            header["remark"] = "\n".join(remark.splitlines()[:2])
        return frame(header, answer.body)


def response_to(request: ScriptedRequest, code: int = 0, remark: str | None = None, body: bytes = b"") -> bytes:
    """A response frame as Java writes it."""
    members: dict[str, Any] = {"flag": 1, "opaque": request.opaque, "language": "JAVA", "version": 479, "code": code}
    return frame(members if remark is None else {**members, "remark": remark}, body)
