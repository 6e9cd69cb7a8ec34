"""A fake Apache NameServer: answers 105 in JSON, and closes on a header that is not RocketMQ's.

Frames are cut and spelt here without the code under test.
"""

import asyncio
import json
import struct
from typing import Any, Self

from tests.support.fake_clock import settle
from tests.support.scripted_server import Question, frame

HOST = "127.0.0.1"
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


class ApacheServer:
    """An async context manager that listens on a free port."""

    def __init__(self) -> None:
        # topic -> the body of its answer; None: no answer at all; an int: that error code. Others do not exist.
        self.routes: dict[str, bytes | int | None] = {}
        # what was asked: (code, topic)
        self.asked: list[tuple[int, str]] = []
        # connections that were closed for what they sent
        self.refused = 0
        # connections ever taken
        self.accepted = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def __repr__(self) -> str:
        return f"<ApacheServer [{self.address} | {len(self.routes)} topics | {len(self.asked)} asked]>"

    @property
    def address(self) -> str:
        """Where to connect."""
        return f"{HOST}:{self.port}"

    @property
    def topics_asked(self) -> list[str]:
        """The topics of the route questions, in order."""
        return [topic for code, topic in self.asked if code == 105]

    async def __aenter__(self) -> Self:
        """Listen."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Die: nobody listens, and all connections are closed."""
        if self._server is not None:
            self._server.close()
            self._server = None
        # whom the kernel has let in already gets as far as `_serve`
        await settle()
        self.hang_up()
        await settle()

    def hang_up(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            while True:
                length, word = struct.unpack(">II", await reader.readexactly(8))
                rest = await reader.readexactly(length - 4)
                if word >> 24 not in (0, 1):
                    self.refused += 1
                    return
                size = word & 0xFFFFFF
                self._answer(Question(json.loads(rest[:size]), rest[size:]), writer)
        except (OSError, EOFError, asyncio.CancelledError):
            # a stream's task that is cancelled is reported
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    def _answer(self, question: Question, writer: asyncio.StreamWriter) -> None:
        topic = str((question.header.get("extFields") or {}).get("topic"))
        self.asked.append((question.code, topic))
        said: dict[str, Any] = {"flag": 1, "opaque": question.opaque, "language": "JAVA", "version": 479}
        if question.code != 105:
            said |= {"code": 3, "remark": f" request type {question.code} not supported"}
            writer.write(frame(said))
            return
        found = self.routes.get(topic, 17)
        if isinstance(found, bytes):
            writer.write(frame({**said, "code": 0}, found))
        elif found == 17:
            remark = f"No topic route info in name server for the topic: {topic}\n{FAQ}"
            writer.write(frame({**said, "code": 17, "remark": remark}))
        elif found is not None:
            writer.write(frame({**said, "code": found, "remark": "a bug"}))
