"""Apache's NameServer before it is measured."""

from pathlib import Path

import pytest

from benchmarks.figures import BenchError
from benchmarks.peers import apache, pairs
from benchmarks.peers.apache import HEAPS, lib, version
from benchmarks.peers.pairs import Sides, against_apache


def fetched(peers: Path, *jars: str) -> Path:
    """A directory as setup.sh leaves it."""
    for jar in jars:
        path = peers / jar
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return peers


def test_the_newest_that_was_fetched_is_measured(tmp_path: Path) -> None:
    """Ten is newer than nine, as a number."""
    found = lib(
        fetched(
            tmp_path,
            "namesrv-4/lib/rocketmq-namesrv-4.9.7.jar",
            "namesrv-5/lib/rocketmq-namesrv-5.10.0.jar",
            "broker-5/lib/rocketmq-broker-5.11.0.jar",
            "old/lib/rocketmq-namesrv-5.9.2.jar",
        )
    )

    assert tmp_path / "namesrv-5" / "lib" == found
    assert "5.10.0" == version(found)


def test_it_is_said_who_fetches_it(tmp_path: Path) -> None:
    """Nothing was fetched yet."""
    with pytest.raises(BenchError, match=r"sh tests/interop/setup\.sh fetches it"):
        lib(fetched(tmp_path, "broker-5/lib/rocketmq-broker-5.3.3.jar"))
    with pytest.raises(BenchError, match=r"has no rocketmq-namesrv-\*\.jar"):
        version(tmp_path)


def test_ours_is_compared_with_each_of_apaches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Round by round; which version, which heap, and both figures are said."""
    jars = fetched(tmp_path, "namesrv-5/lib/rocketmq-namesrv-5.3.3.jar")
    monkeypatch.setattr(pairs, "lib", lambda: lib(jars))
    found = {"4 GB": Sides([100.0, 300.0], [50.0, 100.0]), "512 MB": Sides([10.0], [40.0])}

    large, small = against_apache("pulls.rate", "rate", "per_second", found)

    assert ("peers.pulls.rate.4gb", "rate: ours / Apache's 5.3.3, 4 GB") == (large.name, large.what)
    assert ((2.0, 3.0), "200/s / 75/s") == (large.values, large.behind)
    assert ("peers.pulls.rate.512mb", (0.25,)) == (small.name, small.values)
    assert {"4 GB", "512 MB"} == HEAPS.keys()


def test_nothing_of_java_or_rocketmq_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set for somebody's own server says nothing about this one."""
    for name in ("JAVA_TOOL_OPTIONS", "ROCKETMQ_SERIALIZE_TYPE", "NAMESRV_ADDR"):
        monkeypatch.setenv(name, "something")

    environment = apache._environment("/nowhere")

    assert environment.keys().isdisjoint({"JAVA_TOOL_OPTIONS", "ROCKETMQ_SERIALIZE_TYPE", "NAMESRV_ADDR"})
    assert ("/nowhere", "/nowhere") == (environment["ROCKETMQ_HOME"], environment["HOME"])
