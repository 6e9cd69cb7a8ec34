"""The server responds as Apache's does, apart from deliberate deviations."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.golden.replay import (
    read_deviations,
    read_scenario,
    replay,
    unused,
)
from tests.support.in_process import namesrv_in_process

HERE = Path(__file__).parent
# Frames of real brokers, recorded with Apache's NameServer.
RECORDINGS = HERE / "recordings"
SCENARIOS = {"all-codes": 57, "malformed-frames": 49, "register-variants": 64}
PATHS = [*(HERE / f"{name}.jsonl" for name in SCENARIOS), *sorted(RECORDINGS.glob("*.jsonl"))]
# The recorded server has this enabled by default.
AS_RECORDED: dict[str, Any] = {"admin_enabled": True, "proxy_protocol": "optional"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
async def test_scenario(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fresh server answers every step as recorded with Apache's server, or as the step's deviation says."""
    deviations = read_deviations(path.parent / "deviations.toml")

    async with namesrv_in_process(tmp_path, **(AS_RECORDED if path.stem in SCENARIOS else {})) as server:
        results = await asyncio.to_thread(replay, server.address, read_scenario(path), deviations)

    assert [str(result) for result in results if result.problems] == []
    assert SCENARIOS.get(path.stem, len(results)) == len(results)
    assert unused(deviations, results) == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
