"""The side-car as a command: its file, its signals, its exit codes."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from namesrv_broker_agent import BrokerAgent
from namesrv_broker_agent.cli import SideCar, main
from namesrv_broker_agent.settings import read_config
from tests.support.agents import wait_until_routed
from tests.support.daemon import Daemon
from tests.support.hanging_list import opened_by_reader
from tests.support.peer import Peer
from tests.support.printing_process import PrintingProcess
from tests.support.threads import without_new_threads

MODULE = (sys.executable, "-m", "namesrv_broker_agent")
SCRIPT = (str(Path(sys.executable).with_name("namesrv-broker-agent")),)
# The command on a network disk that is dead while the named pipe `dead` is beside the file: a stat then hangs.
ON_A_DEAD_DISK = """
import os, sys
from namesrv_broker_agent.cli import main

file, stat = sys.argv[2], os.stat
pipe = os.path.join(os.path.dirname(file), "dead")

def hanging(path, *rest, **options):
    if str(path) == file and os.access(pipe, os.F_OK):
        open(pipe).read()
    return stat(path, *rest, **options)

os.stat = hanging
sys.exit(main())
"""


class ConfigFile:
    """The side-car's file, and waiting for its effects on routes."""

    def __init__(self, path: Path, namesrv: Daemon) -> None:
        self.path = path
        self.name = path.parent.name
        self._namesrv = namesrv
        self.server = namesrv.where

    def write(self, perms: dict[str, int], **settings: object) -> None:
        """Write these topics with their permissions in one step."""
        values = {
            "cluster_name": "c1",
            "broker_name": self.name,
            "broker_addr": f"{self.name}:1",
            "name_servers": self.server,
            **settings,
        }
        lines = [f"{name} = {value!r}" for name, value in values.items()]
        lines += [
            f'[[topics]]\ntopic_name = "{topic}"\nread_queue_nums = 2\nwrite_queue_nums = 2\nperm = {perm}'
            for topic, perm in perms.items()
        ]
        self.put("\n".join(lines))

    def put(self, content: str) -> None:
        """Write any content in one step."""
        other = self.path.with_name("next.toml")
        other.write_text(content)
        other.replace(self.path)

    def wait_until_known(self, **perms: int | None) -> None:
        """Return once routes have exactly these permissions of the broker by topic; None means no broker."""
        wait_until_routed(self._namesrv, self.name, **perms)

    def wait_until_left(self, reason: str = "unregistered") -> None:
        self._namesrv.wait_for("broker_evicted", broker_name=self.name, reason=reason)


@pytest.fixture
def file(tmp_path: Path, namesrv: Daemon) -> ConfigFile:
    """The file of this test's broker, with one topic."""
    found = ConfigFile(tmp_path / "agent.toml", namesrv)
    found.write({"orders": 6})
    return found


def side_car(file: ConfigFile, *flags: str, command: tuple[str, ...] = MODULE) -> PrintingProcess:
    """The command with this file; it logs text unless a flag changes that."""
    return PrintingProcess(*command, "--config", str(file.path), "--log-format=text", *flags)


def test_file_is_checked(file: ConfigFile, capsys: pytest.CaptureFixture[str]) -> None:
    """--check accepts a valid file without starting; a wrong or missing file is reported, also by a start."""
    assert main(["--config", str(file.path), "--check-config"]) == 0
    assert capsys.readouterr() == ("configuration is valid\n", "")

    file.write({"orders": 9})
    wrong = f"namesrv-broker-agent: {file.path}: topic orders: perm 9 is not between 0 and 7\n"
    for flags in ([], ["--check-config"]):
        assert main(["--config", str(file.path), *flags]) == 2
        assert capsys.readouterr() == ("", wrong)

    file.path.unlink()
    assert main(["--config", str(file.path)]) == 2
    assert capsys.readouterr().err == f"namesrv-broker-agent: {file.path}: No such file or directory\n"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('tls = true\ntls_ca_file = "PLACE/nofile"', "PLACE/nofile"),
        ('state_file = "PLACE/empty"', "PLACE/empty cannot be used: truncated or not a sealed file: 0 bytes; move it"),
    ],
)
def test_files_of_the_settings_are_checked(
    file: ConfigFile, settings: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check-config names a CA file or state file that a start could not use."""
    place = str(file.path.parent)
    (file.path.parent / "empty").touch()
    file.put(f"{settings.replace('PLACE', place)}\n{file.path.read_text()}")

    assert main(["--config", str(file.path), "--check-config"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, problem.replace("PLACE", place) in shown.err) == ("", True)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        # A first start under systemd creates the directory.
        ({"state_file": "none/topics.json"}, ""),
        (
            {"broker_addr": "0.0.0.0:10911"},
            "broker_addr 0.0.0.0:10911 is the address of every interface, to which clients cannot connect",
        ),
    ],
)
def test_doubtful_settings_are_valid(
    file: ConfigFile, settings: dict[str, str], warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check-config accepts the file, and warns of an address that no client can use."""
    file.write({"orders": 6}, **settings)

    assert main(["--config", str(file.path), "--check-config"]) == 0
    warnings = f"namesrv-broker-agent: {file.path}: warning: {warning}\n" if warning else ""
    assert capsys.readouterr() == ("configuration is valid\n", warnings)


@pytest.mark.parametrize("content", [None, "damaged"], ids=["no directory", "damaged"])
def test_unusable_state_file_is_an_error(
    file: ConfigFile, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1, one line names the file, and the file stays as it was."""
    state = file.path.with_name("gone" if content is None else "state") / "topics.json"
    if content is not None:
        state.parent.mkdir()
        state.write_text(content)
    file.write({"orders": 6}, state_file=str(state))

    assert main(["--config", str(file.path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("namesrv-broker-agent: ")
    assert str(state.parent) in line
    assert content is None or content == state.read_text()


@pytest.mark.parametrize(
    ("command", "number"), [(SCRIPT, signal.SIGTERM), (MODULE, signal.SIGINT)], ids=["script", "module"]
)
def test_side_car_registers_until_a_signal_ends_it(
    file: ConfigFile, command: tuple[str, ...], number: signal.Signals
) -> None:
    """The broker is registered, and unregistered at the end with exit code 0 and without a traceback."""
    with side_car(file, command=command) as process:
        file.wait_until_known(orders=6)
        process.wait_for(f"INFO name_server_changed server={file.server} status=registered$")
        process.send_signal(number)

        assert process.wait() == 0
        assert len(process.lines_matching("INFO stopped$")) == 1
        assert process.lines_matching("Traceback|ERROR|CRITICAL") == []
    file.wait_until_left()


def test_topics_follow_the_file(file: ConfigFile) -> None:
    """New, changed and deleted topics are applied; a wrong file changes nothing and is reported once."""
    with side_car(file) as process:
        file.wait_until_known(orders=6)

        file.write({"orders": 4, "bills": 6})
        file.wait_until_known(orders=4, bills=6)
        process.wait_for("INFO reloaded topics_changed=2 topics_deleted=0$")

        file.put("nonsense")
        process.wait_for(f"ERROR reload_refused problem=\"{file.path}: not TOML: Expected '='")
        file.path.unlink()
        process.wait_for(f'ERROR reload_refused problem="{file.path}: No such file or directory"')
        file.wait_until_known(orders=4, bills=6)

        file.write({"bills": 6}, heartbeat_seconds=20)
        file.wait_until_known(orders=None, bills=6)
        process.wait_for("INFO reloaded topics_changed=0 topics_deleted=1$")
        process.wait_for('WARNING restart_needed reason="settings other than topics changed"$')
        assert len(process.lines_matching("reload_refused")) == 2
        assert process.stop() == 0


def test_hangup_reads_the_file_now(file: ConfigFile) -> None:
    """SIGHUP reads the file regardless of its time, and reports its errors again."""
    with side_car(file) as process:
        file.wait_until_known(orders=6)
        stat = file.path.stat()
        # same inode, size and time: the change is invisible without SIGHUP
        with file.path.open("r+") as opened:
            content = opened.read()
            opened.seek(0)
            opened.write(content.replace("perm = 6", "perm = 2"))
        os.utime(file.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        process.send_signal(signal.SIGHUP)
        file.wait_until_known(orders=2)

        file.write({"orders": 8})
        process.wait_for("reload_refused .*: topic orders: perm 8 is not between 0 and 7")
        process.send_signal(signal.SIGHUP)
        process.wait_for("reload_refused .*: topic orders: perm 8 is not between 0 and 7", count=2)
        assert process.stop() == 0


def test_failed_state_file_is_retried(file: ConfigFile, tmp_path: Path) -> None:
    """A change that is not on disk is not sent; the error is logged once, and the change retried."""
    state = tmp_path / "topics.json"
    file.write({"orders": 6}, state_file=str(state))
    with side_car(file) as process:
        file.wait_until_known(orders=6)
        state.rename(tmp_path / "away")
        state.mkdir()
        file.write({"orders": 4}, state_file=str(state))
        process.wait_for(f'ERROR reload_refused problem="state file {state}: Is a directory')
        file.wait_until_known(orders=6)
        state.rmdir()
        (tmp_path / "away").rename(state)

        file.wait_until_known(orders=4)
        assert len(process.lines_matching("reload_refused")) == 1
        assert process.stop() == 0


async def test_reload_without_a_thread_is_retried(file: ConfigFile, caplog: pytest.LogCaptureFixture) -> None:
    """The file is read in a thread; without one the side-car goes on with the topics that it has, and tries again."""
    config = read_config(file.path)
    side_car, agent = SideCar(file.path, config, None), BrokerAgent(config.settings, config.topics)
    file.write({"orders": 4, "bills": 6})
    with without_new_threads():
        await side_car._check(agent)
    assert [vars(record)["fields"] for record in caplog.records] == [{"problem": "can't start new thread"}]
    assert set(agent.topics) == {"orders"}

    await side_car._check(agent)
    assert set(agent.topics) == {"orders", "bills"}


def test_version_continues_after_a_restart(file: ConfigFile, namesrv: Daemon, tmp_path: Path) -> None:
    """The file has the topics and the state file the version, also after a topic was deleted."""
    counters = []
    for perms in ({"orders": 6, "bills": 6}, {"orders": 6}, {"orders": 6}):
        file.write(perms, state_file=str(tmp_path / "topics.json"))
        with side_car(file) as process:
            file.wait_until_known(**perms)
            with Peer(namesrv.address, native=True) as peer:
                (broker,) = peer.call(20005, broker_name=file.name)["brokers"]
            counters.append(broker["data_version"]["counter"])
            file.wait_until_known(orders=6, bills=perms.get("bills"))
            assert process.stop() == 0

    assert counters == [1, 2, 2]


def test_drained_side_car_ends(file: ConfigFile) -> None:
    """A drained side-car ends after one poll period."""
    file.write({"orders": 6}, client_poll_seconds=0.0)
    with side_car(file, "--log-format=auto") as process:
        file.wait_until_known(orders=6)
        process.send_signal(signal.SIGUSR1)

        assert process.wait() == 0
        assert process.lines_matching('Traceback|"level":"(error|critical)"') == []
        # without a terminal it logs like the daemon
        events = [json.loads(line)["event"] for line in process.lines]
        assert [name for name in events if name != "name_server_changed"] == ["started", "draining", "stopped"]
        who = {"cluster_name": "c1", "broker_id": 0, "topics": 1}
        assert who.items() <= json.loads(process.lines[0]).items()
    file.wait_until_left()


def test_signal_cuts_a_drain_short(file: ConfigFile) -> None:
    """A supervisor that stops a draining side-car does not wait for the poll period of the clients."""
    file.write({"orders": 6}, client_poll_seconds=600.0)
    with side_car(file) as process:
        file.wait_until_known(orders=6)
        process.send_signal(signal.SIGUSR1)
        file.wait_until_known(orders=4)
        process.send_signal(signal.SIGTERM)

        assert process.wait() == 0
    file.wait_until_left()


def test_server_problems_are_logged_once(file: ConfigFile, tmp_path: Path) -> None:
    """A failing source of the server list and an unreachable server are logged once each; the end is graceful."""
    servers = tmp_path / "servers"
    file.write({"orders": 6}, name_servers=f"file:{servers}")
    with side_car(file) as process:
        process.wait_for(
            f'WARNING name_servers_unknown error="name servers from file:{servers}: .*No such file or directory'
        )
        # in one step: an empty file would be another error
        (tmp_path / "next").write_text(f"127.0.0.1:1;{file.server}")
        (tmp_path / "next").replace(servers)
        file.wait_until_known(orders=6)
        process.wait_for(
            'WARNING name_server_changed server=127.0.0.1:1 status=unreachable error="no connection to 127.0.0.1:1: '
        )
        process.wait_for(f"INFO name_server_changed server={file.server} status=registered$")

        assert len(process.lines_matching("name_servers_unknown")) == 1
        assert process.stop() == 0


async def test_side_car_ends_while_a_stat_of_its_file_hangs(file: ConfigFile) -> None:
    """A signal ends the side-car although the network disk with the file is dead."""
    with side_car(file, command=(sys.executable, "-c", ON_A_DEAD_DISK)) as process:
        file.wait_until_known(orders=6)
        dead = file.path.with_name("dead")
        os.mkfifo(dead)
        with await opened_by_reader(dead):
            process.send_signal(signal.SIGTERM)

            assert process.wait() == 0
    file.wait_until_left()


async def test_side_car_ends_while_its_file_hangs(file: ConfigFile) -> None:
    """A signal ends the side-car although the changed file, as on a dead network disk, cannot be read."""
    with side_car(file) as process:
        file.wait_until_known(orders=6)
        hanging = file.path.with_name("hanging.toml")
        os.mkfifo(hanging)
        hanging.replace(file.path)
        with await opened_by_reader(file.path):
            process.send_signal(signal.SIGTERM)

            assert process.wait() == 0
    file.wait_until_left()


def test_refusal_is_logged_with_its_reason(file: ConfigFile, tmp_path: Path) -> None:
    """An operator sees that the server is reachable and refuses the broker, and why."""
    access = tmp_path / "access.toml"
    access.write_text('[accounts.brokers]\nnetworks = ["127.0.0.0/8"]\nmay = [{ access = "route-read" }]\n')
    with Daemon(tmp_path / "data", f"--access={access}") as server:
        server.listening()
        file.write({"orders": 6}, name_servers=server.where)
        with side_car(file) as process:
            process.wait_for(
                f'WARNING name_server_changed server={server.where} status=refused error="registration refused: '
                "account brokers lacks broker-control"
            )
            assert process.stop() == 0
