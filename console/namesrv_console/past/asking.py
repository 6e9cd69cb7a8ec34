"""The console's end of the worker: requests about the logs, answered one by one in a separate process."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from namesrv_spark_jobs.history.model import Failed, PastRequest, Result, Value
from namesrv_spark_jobs.history.spans import Span

# After this time a page without a result shows that the logs are being read.
PATIENCE_SECONDS: Final = 1.0
# After this time a request fails, since no user waits longer.
LIMIT_SECONDS: Final = 120.0
# Limit of requests at a time; enough for a few users.
MOST_WAITING: Final = 16
_MAX_RESULT_BYTES: Final = 64 << 20


class LoggedRequest(Value, frozen=True, tag="logged"):
    """Which hours have logs, and which directories are missing, as on a disk that is not mounted."""

    # The minute of the request, so that no later request gets its result.
    minute: int


class Logged(Value, frozen=True, tag="logged"):
    """The result for a LoggedRequest."""

    # From the first to the last hour with logs; None without such an hour.
    hours: Span | None
    missing: list[str]


Request = PastRequest | LoggedRequest
Answer = Result | Logged
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)


class Past:
    """Results from the heartbeat logs. The worker process starts with the first request."""

    def __init__(
        self, logs: Sequence[Path], *, limit_seconds: float = LIMIT_SECONDS, max_result_bytes: int = _MAX_RESULT_BYTES
    ) -> None:
        self.logs = tuple(map(str, logs))
        self._limit_seconds = limit_seconds
        self._max_result_bytes = max_result_bytes
        self._worker: asyncio.subprocess.Process | None = None
        # Folder of the worker's tables, which a killed worker leaves behind.
        self._folder: TemporaryDirectory[str] | None = None
        self._one_at_a_time = asyncio.Lock()
        # Requests whose result has not been fetched yet.
        self._asked: dict[Request, asyncio.Task[Answer]] = {}

    def __repr__(self) -> str:
        return f"<Past of {', '.join(self.logs) or 'nothing'}, {len(self._asked)} requests>"

    async def ask(self, request: Request, *, patience_seconds: float) -> Answer | None:
        """The result; None if the worker needs longer than the patience: the same request later returns the result."""
        task = self._asked.get(request)
        if task is None:
            self._forget_finished()
            if len(self._asked) >= MOST_WAITING:
                return Failed(why=f"{MOST_WAITING} requests are waiting already; try again later")
            task = self._asked[request] = asyncio.create_task(self._result(request))
        done, _ = await asyncio.wait([task], timeout=patience_seconds)
        if not done:
            return None
        self._asked.pop(request, None)
        return task.result()

    async def logged(self, wall: float, *, patience_seconds: float) -> Answer | None:
        """The time that the logs cover now, as Logged."""
        return await self.ask(LoggedRequest(minute=int(wall // 60)), patience_seconds=patience_seconds)

    def _forget_finished(self) -> None:
        """Remove finished requests whose pages were closed, once the limit is reached."""
        if len(self._asked) >= MOST_WAITING:
            self._asked = {request: task for request, task in self._asked.items() if not task.done()}

    async def close(self) -> None:
        """End the worker process, also amid a request."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await self._end_worker()

    async def _result(self, request: Request) -> Answer:
        async with self._one_at_a_time:
            try:
                worker = self._worker or await self._start()
            except OSError as error:
                # No directory for temporary files, or no memory for a process.
                return Failed(why=f"the process that reads logs cannot start: {error}")
            assert worker.stdin and worker.stdout  # noqa: S101, PT018 - both are pipes
            try:
                async with asyncio.timeout(self._limit_seconds):
                    worker.stdin.write(msgspec.json.encode(request) + b"\n")
                    line = await worker.stdout.readline()
            except TimeoutError:
                await self._end_worker()
                return Failed(why=f"not answered within {self._limit_seconds:g} s; choose a shorter time")
            except ValueError:
                # A part of the line is still in the pipe, and would be the result for the next request.
                await self._end_worker()
                return Failed(why=f"the result is longer than {self._max_result_bytes:,} bytes; choose a shorter time")
            except asyncio.CancelledError:
                # The next request would otherwise receive the result of the cancelled one.
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
            # Ctrl-C must reach the console only, which ends the worker.
            start_new_session=True,
            limit=self._max_result_bytes,
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
