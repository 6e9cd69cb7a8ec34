"""The server responds as Apache's does, apart from deliberate deviations."""

from pathlib import Path

import pytest

from tests.golden.replay import (
    read_deviations,
    read_scenario,
    replay,
    unused,
)
from tests.support.daemon import Daemon, LoopName

HERE = Path(__file__).parent
# frames of real brokers, recorded with Apache's NameServer
RECORDINGS = HERE / "recordings"
SCENARIOS = {"all-codes": 57, "malformed-frames": 49, "register-variants": 64}
PATHS = [*(HERE / f"{name}.jsonl" for name in SCENARIOS), *sorted(RECORDINGS.glob("*.jsonl"))]
# enabled by default in the recorded server
AS_RECORDED = ("--admin-enabled", "--proxy-protocol", "optional")


@pytest.mark.parametrize("loop", ["auto", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_scenario(path: Path, loop: LoopName, tmp_path: Path) -> None:
    """A fresh server answers every step of Apache's scenarios and real brokers as recorded or as deviations say."""
    deviations = read_deviations(path.parent / "deviations.toml")

    with Daemon(tmp_path / "data", *(AS_RECORDED if path.stem in SCENARIOS else ()), loop=loop) as daemon:
        results = replay(daemon.address, read_scenario(path), deviations)
        exit_code = daemon.stop()

    assert [str(result) for result in results if result.problems] == []
    assert SCENARIOS.get(path.stem, len(results)) == len(results)
    assert unused(deviations, results) == []
    assert exit_code == 0
    assert [line for line in daemon.log if "traceback" in line] == []
