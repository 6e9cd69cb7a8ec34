"""Compaction of closed files by another process; tests/journeys tests it with the real program."""

import threading
from pathlib import Path

import pytest

from namesrv.heartbeat_log import compaction

HANGS = "import time; time.sleep(60)"
FAILS = "import sys; sys.exit(100_000 * 'a warning\\n' + 'no space left')"


@pytest.mark.parametrize(
    ("program", "error"),
    [(HANGS, "not finished after 0 s"), (FAILS, "no space left")],
    ids=["hangs", "many lines"],
)
def test_compaction_always_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, error: str) -> None:
    """A process that hangs is killed after a while, and one with more errors than a pipe holds can write them all."""
    (tmp_path / "namesrv_spark_jobs.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(compaction, "MAX_SECONDS", 0.0 if program == HANGS else 60.0)
    compact = compaction.compaction("keep")
    assert compact is not None

    with pytest.raises(OSError, match=error):
        compact(tmp_path / "file.gz", threading.Event())
