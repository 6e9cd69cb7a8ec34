"""Log events of a program that runs in the test's own process."""

from typing import Any

import pytest


def logged(caplog: pytest.LogCaptureFixture, *names: str) -> list[dict[str, Any]]:
    """The fields of all events with these names."""
    return [vars(record)["fields"] for record in caplog.records if record.msg in names]


def logged_by(caplog: pytest.LogCaptureFixture, logger: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(level, event, fields) of one logger's records; clears all records."""
    records = [record for record in caplog.records if record.name == logger]
    caplog.clear()
    return [(record.levelname, record.msg, vars(record)["fields"]) for record in records]
