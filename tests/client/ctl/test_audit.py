"""The command `audit`: the audit trail of a running or stopped server, read from its files."""

import gzip
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from namesrv_client.ctl.audit_trail import Trail
from namesrv_client.ctl.commands.audit import open_files
from tests.support.ctl import COMMAND, run
from tests.support.daemon import Daemon
from tests.support.peer import Peer, until
from tests.support.permissions import unprivileged
from tests.support.printing_process import PatternProcess

# 2026-03-01 08:00 UTC
EIGHT = 1_772_352_000_000
WHO = {"account": "op", "peer": "10.0.0.7:5000", "proxied": None}
QUEUES = {"broker_name": "broker-a", "read": 8, "write": 8, "perm": 6}


def line(ts_ms: int, event: str, **fields: Any) -> dict[str, Any]:
    """A line as a server writes it."""
    return {"v": 1, "seq": 1, "ts_ms": ts_ms, "nameserver": "ns", "boot_id": "0a", "event": event, **fields}


def changed(ts_ms: int, request: str, *changes: dict[str, Any], **who: Any) -> dict[str, Any]:
    """A line about the changes of a request."""
    return line(ts_ms, "change", request=request, **{**WHO, **who}, changes=list(changes))


KV = changed(
    EIGHT + 3, "PUT_KV_CONFIG", {"what": "kv", "namespace": "NS", "key": "k", "before": None, "after": "\x1b[2J"}
)
REGISTERED = changed(
    EIGHT + 1,
    "REGISTER_BROKER",
    {"what": "routes", "topics": 22, "named": [{"topic": "orders", "before": [], "after": [QUEUES]}]},
    {
        "what": "broker",
        "cluster": "c",
        "broker_addr": "m:1",
        "before": None,
        "after": {"broker_name": "dc1/broker-a", "broker_id": 0},
    },
    account="",
    peer="[fd00::7]:5001",
)
REFUSED = line(
    EIGHT + 3_600_000,
    "refusal",
    **{**WHO, "request": "DELETE_TOPIC_IN_NAMESRV", "reason": "not_granted", "remark": "may not", "repeated": 7},
    about={"topic": "bills"},
)
WIPED = changed(
    EIGHT + 3_600_001,
    "WIPE_WRITE_PERM_OF_BROKER",
    {"what": "write_permission", "broker_name": "broker-b", "topics": 2, "before": True, "after": False},
    account="other",
)


def write(root: Path, hour: str, name: str, *lines: dict[str, Any], rest: bytes = b"") -> Path:
    """Write a file of the trail; a closed one is compressed."""
    path = root / "dt=2026-03-01" / f"hour={hour}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = b"".join(json.dumps(each).encode() + b"\n" for each in lines) + rest
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture(name="data_dir")
def written(tmp_path: Path) -> Path:
    """The data directory of a server that restarted after 8:00 and was killed within a line after 9:00."""
    root = tmp_path / "audit"
    write(root, "08", "ns-0a-2.jsonl.gz", KV)
    write(root, "08", "ns-0a-1.jsonl.gz", line(EIGHT, "start"), REGISTERED)
    write(root, "08", "ns-0b-1.jsonl.gz", line(EIGHT + 2, "start"))
    write(root, "09", "ns-0b-2.jsonl.open", REFUSED, WIPED, rest=b'{"v":1,')
    # left behind by a killed compression
    write(root, "09", ".ns-0b-2.jsonl.gz.tmp", rest=b"half")
    return tmp_path


def test_lines_are_shown_in_order_of_time(data_dir: Path) -> None:
    """Lines of all boots and files are sorted by time, and control characters in names are escaped."""
    done = run("audit", str(data_dir))

    assert (done.code, done.err) == (0, "")
    assert done.cells[0] == ["TIME (UTC)", "EVENT", "ACCOUNT", "PEER", "REQUEST", "WHAT"]
    events = [["start"], ["change"], ["start"], ["change"], ["refusal"], ["change"]]
    assert [cells[1:2] for cells in done.cells[1:]] == events
    assert [cells[-1] for cells in done.cells[1:] if cells[1] != "start"] == [
        "routes of orders and 21 more; registered c/dc1%2Fbroker-a/0 at m:1",
        'kv NS/k: none -> "\\u001b[2J"',
        "not_granted: may not [topic=bills] (7 more)",
        "write permission broker-b: true -> false",
    ]
    assert done.cells[2][2:5] == ["-", "[fd00::7]:5001", "REGISTER_BROKER"]
    assert run("audit", str(data_dir / "audit"), "--limit=1", "-o", "json").json["lines"] == [WIPED]


def test_summary_lines_show_count_and_duration(tmp_path: Path) -> None:
    """Changes of one broker and of one source are summarised; registration lines have files of their own."""
    span = {"first_ms": EIGHT - 2500, "last_ms": EIGHT}
    repeated = {**REGISTERED, "repeated": 5, **span}
    # repeated registrations without a change have no sentence
    unchanged = {**changed(EIGHT + 1, "REGISTER_BROKER"), "repeated": 2, **span}
    changes = line(EIGHT + 2, "changes", count=7, by_source={"orders": 7})
    write(tmp_path / "audit", "08", "ns-0a-1.jsonl.open", line(EIGHT, "start"), line(EIGHT + 9, "stop"))
    write(tmp_path / "audit", "08", "ns-registrations-0a-1.jsonl.open", repeated, unchanged, changes)

    done = run("audit", str(tmp_path))

    assert [cells[1] for cells in done.cells[1:]] == ["start", "change", "change", "changes", "stop"]
    assert [cells[-1] for cells in done.cells[2:5]] == [
        "routes of orders and 21 more; registered c/dc1%2Fbroker-a/0 at m:1 (the last of 5 changes within 2.5 s)",
        "-",
        "7 more changes of brokers: orders (7)",
    ]


@pytest.mark.usefixtures("shanghai")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--event=refusal"], [REFUSED]),
        (["--event=refusal", "--event=change", "--limit=2"], [REFUSED, WIPED]),
        (["--account=o*"], [KV, REFUSED, WIPED]),
        (["--account=op", "--request=put-kv-config"], [KV]),
        (["--peer=fd00::7"], [REGISTERED]),
        (["--peer=10.0.0.7:5000", "--event=change"], [KV, WIPED]),
        (["--broker=dc1/broker-a"], [REGISTERED]),
        (["--broker=*broker-*"], [REGISTERED, WIPED]),
        (["--topic=bills"], [REFUSED]),
        (["--topic=orders"], [REGISTERED]),
        (["--topic=k"], []),
        (["--since=2026-03-01T08:30"], [REFUSED, WIPED]),
        (["--since=2026-03-01T09:00:00.001+00:00"], [WIPED]),
        (["--since=2026-03-01 09:00:00.001"], [WIPED]),
        (["--since=1s"], []),
    ],
)
def test_filters(data_dir: Path, options: list[str], expected: list[dict[str, Any]]) -> None:
    """A line must match every given filter."""
    assert run("audit", str(data_dir), *options, "-o", "json").json["lines"] == expected


@pytest.mark.parametrize(
    ("since", "is_shown"),
    [("3600s", False), ("60m", False), ("70m", True), ("1h", False), ("2h ago", True), ("1d", True)],
)
def test_age_has_a_unit(tmp_path: Path, since: str, is_shown: bool) -> None:
    """A line of 65 minutes ago is shown if `--since` reaches back so far."""
    moment = datetime.now(UTC) - timedelta(minutes=65)
    folder = tmp_path / f"dt={moment:%Y-%m-%d}" / f"hour={moment:%H}"
    folder.mkdir(parents=True)
    recent = {**KV, "ts_ms": round(moment.timestamp() * 1000)}
    (folder / "ns-0a-1.jsonl.open").write_text(json.dumps(recent) + "\n")

    assert run("audit", str(tmp_path), f"--since={since}", "-o", "json").json["lines"] == ([recent] if is_shown else [])


def test_summarised_refusals_are_found_by_address(tmp_path: Path) -> None:
    """A summary of refusals matches the filter for any of its addresses."""
    addresses = {"10.0.0.7": 3, "2001:db8::/64": 2}
    others = line(EIGHT, "refusals", count=6, by_reason={"anonymous": 6}, by_address=addresses)
    write(tmp_path, "08", "ns-0a-1.jsonl.gz", others)

    (row,) = run("audit", str(tmp_path), "--peer=10.0.0.7").cells[1:]

    assert row[-1] == "6 more refused: 10.0.0.7 (3), 2001:db8::/64 (2)"
    assert run("audit", str(tmp_path), "--peer=10.0.0.8", "-o", "json").json["lines"] == []


def test_damaged_files_are_named_and_the_others_shown(data_dir: Path) -> None:
    """A damaged or foreign file makes the exit code 1; all other lines are shown."""
    write(data_dir / "audit", "07", "ns-09-1.jsonl.open", rest=b"no line\n").chmod(0o600)
    broken = write(data_dir / "audit", "08", "ns-0a-3.jsonl.gz", KV)
    broken.write_bytes(broken.read_bytes()[:-12])

    done = run("audit", str(data_dir), "--event=change", "-o", "json")

    assert done.code == 1
    assert done.json["lines"][:2] == [REGISTERED, KV]
    assert done.json["lines"][-1] == WIPED
    assert [problem.rpartition("/")[2][: len("ns-09-1: not a line")] for problem in done.problems] == [
        "ns-09-1: not a line",
        "ns-0a-3: Compressed",
    ]


def test_lines_of_a_heartbeat_log_are_left_out(tmp_path: Path) -> None:
    """A heartbeat log has the same folders and other lines, whose kinds are named once each."""
    beats = [line(EIGHT + number, "heartbeat", brokers=[]) for number in range(3)]
    write(tmp_path, "08", "ns-0a-1.jsonl.open", line(EIGHT, "start"), *beats)

    done = run("audit", str(tmp_path))

    assert (done.code, [cells[1] for cells in done.cells]) == (1, ["EVENT", "start"])
    (problem,) = done.problems
    assert problem.endswith("ns-0a-1: lines of kind 'heartbeat' are not of an audit trail, and left out")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        # a request that no line has, and that RocketMQ does not know either
        (["--request=unregister"], 1, "unknown request 'unregister' (did you mean UNREGISTER_BROKER?)"),
        (["--request=UNREGISTER_BROKER"], 0, "no lines"),
        (["--request=UNREG*"], 0, "no lines"),
        (["--since=yesterday"], 2, "not a time: 'yesterday'"),
        (["--event=refused"], 2, "unknown value 'refused' (did you mean refusal?)"),
    ],
)
def test_wrong_filter_is_named(data_dir: Path, arguments: list[str], code: int, message: str) -> None:
    """The message contains the wrong value."""
    done = run("audit", str(data_dir), *arguments)

    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_follow_shows_new_lines_across_restart(tmp_path: Path) -> None:
    """`--follow` shows lines as they are written, across closed files and a new boot of the server."""
    file = write(tmp_path, "08", "ns-0a-1.jsonl.open", KV, rest=b'{"v":')
    with PatternProcess([*COMMAND, "audit", str(tmp_path), "--follow", "-o", "json"]) as following:

        def shown(count: int) -> list[Any]:
            following.wait_until(lambda: len(following.lines) >= count)
            return [json.loads(each) for each in following.lines]

        assert shown(1) == [KV]
        with file.open("ab") as opened:
            opened.write(json.dumps(REGISTERED).encode().removeprefix(b'{"v":') + b"\n")
        assert shown(2)[1:] == [REGISTERED]
        closed = write(tmp_path, "08", ".ns-0a-1.jsonl.gz", KV, REGISTERED, WIPED)
        closed.rename(file.with_suffix(".gz"))
        file.unlink()
        write(tmp_path, "09", "ns-0b-1.jsonl.open", REFUSED)
        assert shown(4)[2:] == [WIPED, REFUSED]
        following.kill()


def test_missing_default_directory_is_reported_with_a_hint(tmp_path: Path) -> None:
    """The message names the directory and where the server logs its own."""
    absent = tmp_path / "absent"
    hint = "name the server's audit-log-dir, or its data directory, which the server logs as data_dir when it starts"
    usual = tmp_path / ".local" / "state" / "namesrv"
    # not the default port, at which a developer may run a server
    server = "127.0.0.1:1"
    unseen = f", and no open files of a server at {server} can be seen from here; "

    assert f"no such directory: {absent}" in run("audit", str(absent), env={"COLUMNS": "500"}).err
    for environ, code, problem in (
        ({"NAMESRV_DATA_DIR": str(absent)}, 2, f"no such directory: {absent}; "),
        ({"NAMESRV_DATA_DIR": str(tmp_path)}, 1, f"no audit trail in {tmp_path}; "),
        # a server ignores a relative path, too
        ({"XDG_STATE_HOME": "state", "HOME": str(tmp_path)}, 2, f"no such directory: {usual}{unseen}"),
    ):
        done = run("audit", "-s", server, env={"COLUMNS": "500", **environ})
        assert done.code == code
        assert problem + hint in done.err


def test_running_server_is_found_by_its_open_files(tmp_path: Path) -> None:
    """The directory of a running server is preferred to the default one; a message names it unless it is certain."""
    usual = tmp_path / "state" / "namesrv"
    write(usual / "audit", "08", "ns-0a-1.jsonl.gz", KV)
    with Daemon(tmp_path / "elsewhere") as daemon, Peer(daemon.listening().address) as peer:
        assert peer.ask(206).code == 0
        # another thread opens the file and writes the line
        files = (tmp_path / "elsewhere").glob
        until(lambda: any(b"\n" in file.read_bytes() for file in files("audit/dt=*/hour=*/*.open")))
        servers = ["-s", "127.0.0.1:1", "-s", daemon.where]
        found = run("audit", *servers, "--event=start", "-o", "json", env={"XDG_STATE_HOME": str(usual.parent)})
        alone = run("audit", *servers[2:], "--event=start", env={"XDG_STATE_HOME": str(usual.parent)})

    assert found.json["directory"] == str(tmp_path / "elsewhere" / "audit")
    assert [each["event"] for each in found.json["lines"]] == ["start"]
    assert found.problems == [f"the lines of {daemon.where} only, from {tmp_path / 'elsewhere'}"]
    assert alone.problems == []
    ended = run("audit", *servers, "-o", "json", env={"XDG_STATE_HOME": str(usual.parent)})
    assert ended.json["directory"] == str(usual / "audit")
    unseen = f"no open files of a server at 127.0.0.1:1, {daemon.where} can be seen from here"
    assert ended.problems == [f"{unseen}; the lines are from {usual}"]
    nowhere = run("audit", *servers, env={"XDG_STATE_HOME": str(tmp_path), "COLUMNS": "500"})
    assert f"no such directory: {tmp_path / 'namesrv'}, and no open files of a server at 127.0.0.1:1" in nowhere.err


def test_files_that_a_process_closes_meanwhile_hide_no_other(tmp_path: Path) -> None:
    """A busy server opens and closes sockets all the time; its lock stays in the list."""
    held = tmp_path / "lock"
    script = (
        f"held = open({str(held)!r}, 'w')\n"
        "print('opened', flush=True)\n"
        "for _ in range(20_000):\n"
        "    for file in [open('/dev/null') for _ in range(20)]:\n"
        "        file.close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        assert busy.stdout.readline() == b"opened\n"
        found = [held in open_files(busy.pid) for _ in range(200)]
        busy.kill()

    assert all(found)


@pytest.mark.parametrize("closed", ["", "audit", "audit/dt=2026-03-01", "audit/dt=2026-03-01/hour=08"])
def test_trail_without_permission_is_a_problem(closed: str) -> None:
    """A trail that cannot be read must not look like one without changes; each place is named once."""
    # Other users may not enter the directories of pytest.
    with TemporaryDirectory() as name:
        data = Path(name)
        data.chmod(0o755)
        hour = data / "audit" / "dt=2026-03-01" / "hour=08"
        hour.mkdir(parents=True)
        (hour / "ns-0a-1.jsonl.open").write_text(json.dumps(KV) + "\n")
        place = data / closed
        place.chmod(0)
        trail = Trail(data)

        with unprivileged():
            assert (list(trail.news()), trail.last(10), list(trail.news())) == ([], [], [])

        assert trail.problems == [f"{place}: permission denied"]
        place.chmod(0o755)


def test_file_that_the_retention_removes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    """A server removes its oldest files, perhaps while they are read; what is left is shown without a problem."""
    trail = Trail(tmp_path)
    # A new server creates the directory with its first line.
    assert [*trail.news()] == []
    files = [write(tmp_path / "audit", "08", f"ns-0a-{number}.jsonl.gz", KV) for number in (1, 2)]
    lines = trail.news()
    assert next(lines) == KV
    for path in files:
        path.unlink()

    assert (list(lines), trail.problems) == ([], [])


@pytest.mark.parametrize("closed", ["", "data"])
def test_directory_without_permission_is_not_missing(closed: str) -> None:
    """There may be a trail: the command names the directory, and exits with 1."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        data = Path(name, "data")
        data.mkdir()
        # The command's modules are imported with its first run, and `nobody` may be unable to read them.
        assert run("audit", str(data)).code == 1
        Path(name, closed).chmod(0)

        with unprivileged():
            given = run("audit", str(data), env={"XDG_CONFIG_HOME": "/nowhere"})
            named = run("audit", env={"XDG_CONFIG_HOME": "/nowhere", "NAMESRV_DATA_DIR": str(data)})

        assert (given.code, given.problems) == (1, [f"{data}: permission denied"])
        assert named == given
        Path(name, closed).chmod(0o755)
