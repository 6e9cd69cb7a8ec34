"""Fake Apache NameServers: they close on a header that is not RocketMQ's, and spell answers as Java does."""

import asyncio
import json
from typing import Any

from tests.support.raw_peer import RawPeer
from tests.support.scripted_server import Peer, Question, ScriptedServer, frame

FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def apache_route(*names: str, queues: int = 4) -> bytes:
    """A route as Java writes it (fastjson: bare integer keys), over the masters of these brokers."""
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
    """Answers 105 from the routes that a test gives it; an async context manager that listens on a free port."""

    def __init__(self) -> None:
        super().__init__()
        # topic -> the body of its answer; None: no answer at all; an int: that error code. Others do not exist.
        self.routes: dict[str, bytes | int | None] = {}
        # what was asked: (code, topic)
        self.questions: list[tuple[int, str]] = []
        # connections that were closed for what they sent
        self.refused = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self.address} | {len(self.routes)} topics | {len(self.questions)} asked]>"

    @property
    def topics_asked(self) -> list[str]:
        return [topic for code, topic in self.questions if code == 105]

    def _take(self, peer: Peer) -> None:
        task = asyncio.ensure_future(self._serve(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, peer: Peer) -> None:
        try:
            while isinstance((question := await peer.receive()).header, dict):
                topic = str((question.header.get("extFields") or {}).get("topic"))
                answer = await self._answer(question, topic)
                # only now: whoever waits for the question may change what the answer says
                self.questions.append((question.code, topic))
                peer.send(answer)
            self.refused += 1
        except (OSError, EOFError):
            pass
        finally:
            peer.writer.transport.abort()

    async def _answer(self, question: Question, topic: str) -> bytes:
        if question.code != 105:
            return response_to(question, 3, f" request type {question.code} not supported")
        found = self.routes.get(topic, 17)
        if found is None:
            return b""
        if isinstance(found, bytes):
            return response_to(question, body=found)
        none = f"No topic route info in name server for the topic: {topic}\n{FAQ}"
        return response_to(question, found, none if found == 17 else "a bug")


class ApacheFront(ApacheServer):
    """Makes one of our servers look like Apache's; it answers some codes itself."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__()
        self._target = target
        # code -> the body of a successful answer; others are forwarded
        self.bodies: dict[int, bytes] = {}
        # code -> the remark of a refusal
        self.remarks: dict[int, str] = {}

    @property
    def asked(self) -> list[tuple[int, int]]:
        """(serialize type, code) of each question, and of each that was refused for its type, which come first."""
        return [(77, 0)] * self.refused + [(0, code) for code, _ in self.questions]

    async def _answer(self, question: Question, topic: str) -> bytes:
        if question.code in self.bodies:
            return response_to(question, body=self.bodies[question.code])
        if question.code in self.remarks:
            return response_to(question, 1, self.remarks[question.code])
        ours = await RawPeer.connect(self._target)
        try:
            answer = await ours.ask(frame(question.header, question.body))
        finally:
            ours.close()
        return frame(answer.header, answer.body)


def response_to(question: Question, code: int = 0, remark: str | None = None, body: bytes = b"") -> bytes:
    """The frame of an answer, as Java spells it."""
    members: dict[str, Any] = {"flag": 1, "opaque": question.opaque, "language": "JAVA", "version": 479, "code": code}
    return frame(members if remark is None else {**members, "remark": remark}, body)
