"""What a program that runs in the test's own process has logged."""

from typing import Any

import pytest


def logged(caplog: pytest.LogCaptureFixture, *names: str) -> list[dict[str, Any]]:
    """The fields of all events of these names."""
    return [vars(record)["fields"] for record in caplog.records if record.msg in names]
