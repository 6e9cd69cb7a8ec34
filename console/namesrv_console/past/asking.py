"""The console's end of the worker: questions to the logs, answered one after the other by a process of its own."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from namesrv_spark_jobs.history.model import Answer, Failed, Question

# a page that is not there by then says that it is being made
PATIENCE_SECONDS: Final = 1.0
# longer than that nobody waits
LIMIT_SECONDS: Final = 120.0
# questions at a time; those of a few people
MOST_WAITING: Final = 16
_MOST_ANSWER_BYTES: Final = 64 << 20
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


class Past:
    """What the logs answer. The process starts with the first question."""

    def __init__(self, logs: Sequence[Path], *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.logs = tuple(map(str, logs))
        self._limit_seconds = limit_seconds
        self._worker: asyncio.subprocess.Process | None = None
        # of its tables, which it may leave behind
        self._folder: TemporaryDirectory[str] | None = None
        self._turn = asyncio.Lock()
        # those whose answers nobody has taken yet
        self._asked: dict[Question, asyncio.Task[Answer]] = {}

    def __repr__(self) -> str:
        return f"<Past of {', '.join(self.logs) or 'nothing'}, {len(self._asked)} questions>"

    async def ask(self, question: Question, *, patience_seconds: float = PATIENCE_SECONDS) -> Answer | None:
        """The answer; None when that takes longer, then the same question soon finds it."""
        task = self._asked.get(question)
        if task is None:
            self._forget_finished()
            if len(self._asked) >= MOST_WAITING:
                return Failed(why=f"{MOST_WAITING} questions are waiting already; try again later")
            task = self._asked[question] = asyncio.create_task(self._answer(question))
        done, _ = await asyncio.wait([task], timeout=patience_seconds)
        if not done:
            return None
        self._asked.pop(question, None)
        return task.result()

    def _forget_finished(self) -> None:
        """Who asked went away."""
        if len(self._asked) >= MOST_WAITING:
            self._asked = {question: task for question, task in self._asked.items() if not task.done()}

    async def close(self) -> None:
        """End the process, whatever it does."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await self._end_worker()

    async def _answer(self, question: Question) -> Answer:
        async with self._turn:
            worker = self._worker or await self._start()
            assert worker.stdin and worker.stdout  # noqa: S101, PT018 - both are pipes
            try:
                async with asyncio.timeout(self._limit_seconds):
                    worker.stdin.write(msgspec.json.encode(question) + b"\n")
                    line = await worker.stdout.readline()
            except TimeoutError:
                await self._end_worker()
                return Failed(why=f"not answered within {self._limit_seconds:g} s; choose a shorter time")
            except asyncio.CancelledError:
                # its answer would be taken for that of the next question
                await self._end_worker()
                raise
            if not line.endswith(b"\n"):
                await self._end_worker()
                return Failed(why="the process that reads logs has ended; the console's log says why")
            return _answers.decode(line)

    async def _start(self) -> asyncio.subprocess.Process:
        self._folder = TemporaryDirectory(prefix="namesrv-console-")
        self._worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "namesrv_console.past.worker", self._folder.name, *self.logs),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C is for the console, which ends it
            start_new_session=True,
            limit=_MOST_ANSWER_BYTES,
        )
        return self._worker

    async def _end_worker(self) -> None:
        worker, folder, self._worker, self._folder = self._worker, self._folder, None, None
        if worker is not None and worker.returncode is None:
            worker.kill()
        if worker is not None:
            await worker.wait()
        if folder is not None:
            folder.cleanup()
