"""Does the daemon say that it has set a damaged file aside? The rest is shared, and tested with the wire."""

from pathlib import Path

import pytest

from namesrv import durable_file
from namesrv.durable_file import set_aside
from namesrv_runtime.durable_file import remove_leftovers, write_atomically

# 2025-01-31 23:59:59 UTC
LAST_SECOND_OF_JANUARY = 1_738_367_999.0


def test_damaged_file_is_set_aside_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The content is kept under a name that says when, and one warning says where and why."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"damaged")

    kept_as = set_aside(path, "torn", wall_seconds=LAST_SECOND_OF_JANUARY)

    assert tmp_path / "snapshot.json.damaged-20250131T235959Z" == kept_as
    assert b"damaged" == kept_as.read_bytes()
    assert [kept_as] == list(tmp_path.iterdir())
    (record,) = caplog.records
    assert "WARNING damaged_file_set_aside" == f"{record.levelname} {record.msg}"
    assert {"path": path, "kept_as": kept_as, "reason": "torn"} == vars(record)["fields"]


def test_what_cannot_be_set_aside_is_not_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is not there cannot be renamed: an error, and no line in the log."""
    with pytest.raises(FileNotFoundError):
        set_aside(tmp_path / "snapshot.json", "torn")

    assert [] == caplog.records


def test_the_rest_is_the_shared_one() -> None:
    """Writing and clearing up are the wire's own functions."""
    assert write_atomically is durable_file.write_atomically
    assert remove_leftovers is durable_file.remove_leftovers
