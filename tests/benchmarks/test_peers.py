"""The peers before their measurement: fetching them, and the frames that are sent to them."""

import sys
from pathlib import Path

import pytest

from benchmarks.harness.rounds import Bench
from benchmarks.peers.etcd import VERSION, field, h2_frame
from benchmarks.peers.fetching import AbsentError, fetched
from benchmarks.peers.peers import OURS, Peer, Peers, against

BENCH = Bench()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "namesrv-bench-peers"


def python(code: str, *arguments: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-c", f"import sys; {code}", *arguments]


def test_a_peer_is_fetched_once_and_only_kept_when_it_is_complete(cache: Path) -> None:
    """An incomplete peer is fetched again."""
    write = "open(sys.argv[1] + '/program', 'w').write(sys.argv[2])"
    with pytest.raises(AbsentError, match=r"^peer-1: .* failed: no such version$"):
        fetched(BENCH, "peer-1", [], python(f"{write}; sys.exit('no such version')", "{into}", "half"))
    assert list(cache.iterdir()) == []

    for content in ("whole", "again"):
        assert fetched(BENCH, "peer-1", [], python(write, "{into}", content)) == cache / "peer-1"
        assert (cache / "peer-1" / "program").read_text() == "whole"


@pytest.mark.usefixtures("cache")
def test_missing_peer_is_reported_once_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the tools no peer is compared, and the run succeeds."""
    monkeypatch.setenv("PATH", "")
    peers = Peers(["apache", "etcd"])

    assert (peers.available(BENCH), peers.name_servers(BENCH), peers.with_less_heap(BENCH)) == ([], [], [])

    assert capsys.readouterr().err.splitlines() == [
        "bench: left out: apache-5.3.3: no java on PATH",
        "bench: left out: apache-5.5.0: no java on PATH",
        f"bench: left out: etcd-{VERSION}: no go on PATH",
    ]


def test_ours_is_compared_with_each_available_peer() -> None:
    """Each peer has a column, compared round by round; a peer without figures is left out."""
    etcd = Peer("etcd", "etcd 3", OURS.start)
    absent = Peer("absent", "absent 1", OURS.start)

    ours, figure = against(
        "pulls.rate", "pulls", "per_second", {"ours": [100.0, 300.0], "etcd": [50.0, 100.0]}, [etcd, absent]
    )

    assert (ours.name, ours.column, ours.values) == ("peers.pulls.rate.ours", "ours", [100.0, 300.0])
    assert (figure.name, figure.what, figure.column) == ("peers.pulls.rate.etcd", "pulls", "ours / etcd 3")
    assert (figure.values, figure.details) == ((2.0, 3.0), "75/s")


def test_frames_of_etcd_are_spelt_for_its_reader() -> None:
    """Frames equal bytes of protobuf and HTTP/2 that are written by hand."""
    assert [field(1, b"key"), field(7, 1), field(1, 300)] == [b"\x0a\x03key", b"\x38\x01", b"\x08\xac\x02"]
    assert h2_frame(0, 1, 3, b"hi") == b"\x00\x00\x02\x00\x01\x00\x00\x00\x03hi"
