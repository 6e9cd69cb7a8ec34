"""The process that reads logs: requests are answered one after the other, and the process may end at any time."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from namesrv_console.past.asking import Past
from namesrv_spark_jobs.history.model import Failed, Timeline, TimelineRequest
from namesrv_spark_jobs.history.spans import MINUTE_MS, Span
from tests.support.heartbeat_lines import MIDNIGHT_MS
from tests.support.spark_logs import write_log

PATIENT = 60.0


def request_of(minutes: int) -> TimelineRequest:
    """One of many different requests for the same hour."""
    return TimelineRequest(span=Span(MIDNIGHT_MS, MIDNIGHT_MS + minutes * MINUTE_MS))


@pytest.fixture
async def past(tmp_path: Path) -> AsyncIterator[Past]:
    """The past of two servers' logs."""
    opened = Past([write_log(tmp_path / "logs")])
    yield opened
    await opened.close()


async def test_result_is_kept_for_a_later_request(past: Past) -> None:
    """A request whose patience is over goes on being answered, once, and does not block the event loop."""
    assert await past.ask(request_of(5), patience_seconds=0) is None

    found = await past.ask(request_of(5), patience_seconds=PATIENT)
    failed = await past.ask(TimelineRequest(span=Span(0, MINUTE_MS)), patience_seconds=PATIENT)

    assert isinstance(found, Timeline)
    assert len(found.rows) == 3
    assert isinstance(failed, Failed)
    assert "no log from" in failed.why


async def test_questions_beyond_a_few_are_refused(past: Past) -> None:
    """At most sixteen requests wait; answered requests whose pages were closed do not count."""
    for minutes in range(1, 17):
        assert await past.ask(request_of(minutes), patience_seconds=0) is None

    refused = await past.ask(request_of(17), patience_seconds=0)
    last = await past.ask(request_of(16), patience_seconds=PATIENT)
    accepted = await past.ask(request_of(17), patience_seconds=PATIENT)

    assert refused == Failed(why="16 requests are waiting already; try again later")
    assert isinstance(last, Timeline)
    assert isinstance(accepted, Timeline)


async def test_missing_temporary_directory_is_named(
    past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have no writable directory; once there is one, requests are answered."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    failed = await past.ask(request_of(5), patience_seconds=PATIENT)
    monkeypatch.undo()

    assert isinstance(failed, Failed)
    assert "the process that reads logs cannot start: " in failed.why
    assert f"No such file or directory: '{tmp_path}/nowhere/namesrv-console-" in failed.why
    assert isinstance(await past.ask(request_of(5), patience_seconds=PATIENT), Timeline)


async def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A new process answers the next request."""
    slow = Past([write_log(tmp_path / "logs")], limit_seconds=0.001)
    found = await slow.ask(request_of(5), patience_seconds=PATIENT)
    again = await slow.ask(request_of(5), patience_seconds=PATIENT)
    await slow.close()

    late = Failed(why="not answered within 0.001 s; choose a shorter time")
    assert [late, late] == [found, again]


async def test_result_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    """A topic may be on thousands of brokers; the next request does not get the rest of the result."""
    past = Past([write_log(tmp_path / "logs")], max_result_bytes=500)
    too_long = await past.ask(request_of(5), patience_seconds=PATIENT)
    short = await past.ask(TimelineRequest(span=Span(0, MINUTE_MS)), patience_seconds=PATIENT)
    await past.close()

    assert too_long == Failed(why="the result is longer than 500 bytes; choose a shorter time")
    assert isinstance(short, Failed)
    assert "no log from" in short.why


async def test_worker_ends_with_its_console(tmp_path: Path) -> None:
    """Closing the console's past cancels a waiting request and ends the worker process."""
    past = Past([write_log(tmp_path / "logs")])
    waiting = asyncio.create_task(past.ask(request_of(5), patience_seconds=PATIENT))
    await asyncio.sleep(0)

    await past.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.slow
def test_worker_of_a_killed_console_removes_its_folder(tmp_path: Path) -> None:
    """The worker removes the folder itself; its output is one result for each line, and nothing else."""
    tables = tmp_path / "tables"
    tables.mkdir()
    command = [sys.executable, "-m", "namesrv_console.past.worker", str(tables), str(write_log(tmp_path / "logs"))]
    asked = msgspec.json.encode(request_of(5)) + b"\n"

    done = subprocess.run(command, input=asked, capture_output=True, check=True)

    assert msgspec.json.decode(done.stdout)["type"] == "timeline"
    assert done.stderr == b""
    assert not tables.exists()
