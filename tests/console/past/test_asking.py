"""The process that reads logs: questions wait their turn, and it may end at any time."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from namesrv_console.past.asking import Past
from namesrv_spark_jobs.history.model import Failed, Timeline, TimelineQuestion
from namesrv_spark_jobs.history.spans import MINUTE_MS, Span
from tests.support.heartbeat_lines import MIDNIGHT_MS
from tests.support.spark_logs import write_log

PATIENT = 60.0


def question(minutes: int) -> TimelineQuestion:
    """One of many, all of them within one hour."""
    return TimelineQuestion(span=Span(MIDNIGHT_MS, MIDNIGHT_MS + minutes * MINUTE_MS))


@pytest.fixture
async def past(tmp_path: Path) -> AsyncIterator[Past]:
    """Logs of two servers."""
    opened = Past([write_log(tmp_path / "logs")])
    yield opened
    await opened.close()


async def test_who_is_not_patient_finds_the_answer_later(past: Past) -> None:
    """Nobody asks twice: the question goes on being answered, and the loop is free meanwhile."""
    assert await past.ask(question(5), patience_seconds=0) is None

    found = await past.ask(question(5), patience_seconds=PATIENT)
    failed = await past.ask(TimelineQuestion(span=Span(0, MINUTE_MS)), patience_seconds=PATIENT)

    assert isinstance(found, Timeline)
    assert len(found.lanes) == 3
    assert isinstance(failed, Failed)
    assert "no log from" in failed.why


async def test_questions_beyond_a_few_are_refused(past: Past) -> None:
    """Sixteen wait; who left without an answer takes no place."""
    for minutes in range(1, 17):
        assert await past.ask(question(minutes), patience_seconds=0) is None

    refused = await past.ask(question(17), patience_seconds=0)
    last = await past.ask(question(16), patience_seconds=PATIENT)
    accepted = await past.ask(question(17), patience_seconds=PATIENT)

    assert Failed(why="16 questions are waiting already; try again later") == refused
    assert isinstance(last, Timeline)
    assert isinstance(accepted, Timeline)


async def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """The next question finds another one."""
    slow = Past([write_log(tmp_path / "logs")], limit_seconds=0.001)
    found = await slow.ask(question(5), patience_seconds=PATIENT)
    again = await slow.ask(question(5), patience_seconds=PATIENT)
    await slow.close()

    late = Failed(why="not answered within 0.001 s; choose a shorter time")
    assert [late, late] == [found, again]


async def test_nothing_is_left_of_a_console_that_ends(tmp_path: Path) -> None:
    """Whoever still waits is told, and no process goes on."""
    past = Past([write_log(tmp_path / "logs")])
    waiting = asyncio.create_task(past.ask(question(5), patience_seconds=PATIENT))
    await asyncio.sleep(0)

    await past.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_process_whose_console_is_gone_leaves_nothing(tmp_path: Path) -> None:
    """A console that was killed removes no folder; there is one answer for each line, and nothing else."""
    tables = tmp_path / "tables"
    tables.mkdir()
    command = [sys.executable, "-m", "namesrv_console.past.worker", str(tables), str(write_log(tmp_path / "logs"))]
    asked = msgspec.json.encode(question(5)) + b"\n"

    done = subprocess.run(command, input=asked, capture_output=True, check=True)

    assert msgspec.json.decode(done.stdout)["type"] == "timeline"
    assert done.stderr == b""
    assert not tables.exists()
