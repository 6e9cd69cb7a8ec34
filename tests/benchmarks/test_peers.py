"""The peers before they are measured: which can be had, and what is sent to them."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers.asking import Script
from benchmarks.peers.contestants import OURS, Contestant, Peers, against
from benchmarks.peers.etcd import field, h2_frame, version
from benchmarks.peers.fetching import AbsentError, fetched
from benchmarks.peers.starting import environment
from benchmarks.rounds import QUICK, Bench, Cores

BENCH = Bench(QUICK, Cores(None, None), Path("load"), Path("limit"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "namesrv-bench-peers"


def python(code: str, *arguments: str) -> list[str]:
    """A command."""
    return [sys.executable, "-c", f"import sys; {code}", *arguments]


def test_a_peer_is_fetched_once_and_only_kept_when_it_is_complete(cache: Path) -> None:
    """Half of one is never taken for a whole one."""
    write = "open(sys.argv[1] + '/program', 'w').write(sys.argv[2])"
    with pytest.raises(AbsentError, match=r"^peer-1: .* failed: no such version$"):
        fetched(BENCH, "peer-1", [], lambda into: python(f"{write}; sys.exit('no such version')", str(into), "half"))
    assert [] == list(cache.iterdir())

    for content in ("whole", "again"):
        assert cache / "peer-1" == fetched(BENCH, "peer-1", [], lambda into: python(write, str(into), content))  # noqa: B023
        assert "whole" == (cache / "peer-1" / "program").read_text()


def test_what_cannot_be_had_is_said_once_and_left_out(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any tool there is nobody to compare with, and that is no failure."""
    monkeypatch.setenv("PATH", "")
    peers = Peers(cache / "no-such-program")

    assert [] == peers.had(BENCH)
    assert [] == peers.name_servers(BENCH)
    assert [] == peers.with_less_heap(BENCH)

    assert [
        "bench: left out: apache-5.3.3: no java on PATH",
        "bench: left out: apache-5.5.0: no java on PATH",
        f"bench: left out: rocketmq-rust: no program {cache}/no-such-program",
        "bench: left out: zookeeper-3.9.5: no java on PATH",
        f"bench: left out: etcd-{version()}: no go on PATH",
    ] == capsys.readouterr().err.splitlines()


def test_ours_is_compared_with_each_that_was_found() -> None:
    """Round by round; who it is and both figures are said, and nothing of those who were not asked."""
    etcd = Contestant("etcd", "etcd 3", OURS.start)
    absent = Contestant("absent", "absent 1", OURS.start)

    (figure,) = against(
        "pulls.rate", "pulls", "per_second", {"ours": [100.0, 300.0], "etcd": [50.0, 100.0]}, [etcd, absent]
    )

    assert ("peers.pulls.rate.etcd", "pulls: ours / etcd 3") == (figure.name, figure.what)
    assert ((2.0, 3.0), "200/s / 75/s") == (figure.values, figure.behind)


def test_nothing_of_java_or_rocketmq_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set for somebody's own server says nothing about this one."""
    for name in ("JAVA_TOOL_OPTIONS", "ROCKETMQ_SERIALIZE_TYPE", "NAMESRV_ADDR"):
        monkeypatch.setenv(name, "something")

    found = environment(Path("/nowhere"))

    assert found.keys().isdisjoint({"JAVA_TOOL_OPTIONS", "ROCKETMQ_SERIALIZE_TYPE", "NAMESRV_ADDR"})
    assert ("/nowhere", "/nowhere") == (found["ROCKETMQ_HOME"], found["HOME"])


def test_what_is_sent_is_spelt_as_its_reader_reads_it() -> None:
    """Protobuf's, HTTP/2's and registry.c's lengths and numbers, written by hand."""
    assert b"\x0a\x03key" == field(1, b"key")
    assert b"\x38\x01" == field(7, 1)
    assert b"\x08\xac\x02" == field(1, 300)
    assert b"\x00\x00\x02\x00\x01\x00\x00\x00\x03hi" == h2_frame(0, 1, 3, b"hi")
    script = Script("length", [b"q"], greeting=b"hello", acks=1, least_bytes=5)
    assert b"\0\0\0\5hello\0\0\0\0\0\0\0\0\0\0\0\1q" == script.items()
    assert ["--framing", "length", "--acks", "1", "--least", "5"] == script.flags()
