"""SIGHUP changes what can change, and leaves the rest alone."""

import os
import signal
import sys
from pathlib import Path

from tests.support.broker import Broker
from tests.support.daemon import Start
from tests.support.peer import Connect
from tests.support.terminal import Terminal


def test_reload(start: Start, connect: Connect, tmp_path: Path) -> None:
    """A file that has changed: what can change is in effect, what cannot is named; connections stay."""
    config = tmp_path / "namesrv.toml"
    config.write_text("enable_all_topic_list = true\n")
    daemon = start("--config", str(config), "--max-connections", "50")
    peer = connect(daemon)
    Broker().register(peer)
    assert 0 == peer.ask(206).code

    config.write_text(
        "enable_all_topic_list = false\nlisten_port = 1\nscan_interval_seconds = 5\nlog_level = 'debug'\n"
    )
    daemon.send_signal(signal.SIGHUP)

    assert (2, 1) == tuple(daemon.wait_for("reloaded")[name] for name in ("changed", "need_restart"))
    changed = daemon.wait_for("setting_changed", setting="enable_all_topic_list")
    assert (True, False, f"file {config}") == (changed["old"], changed["new"], changed["origin"])
    # the port is a flag's, which wins over the file as at the start
    needs = daemon.wait_for("setting_needs_restart")
    assert ("scan_interval_seconds", 10.0, 5.0) == (needs["setting"], needs["old"], needs["new"])
    assert 1 == peer.ask(206).code
    assert 0 == peer.ask(105, {"topic": "orders"}).code
    # at the level debug a connection is told
    address = connect(daemon).address
    daemon.wait_for("connection_opened", peer=address)


def test_bad_file(start: Start, connect: Connect, tmp_path: Path) -> None:
    """Changes nothing, says what is wrong, and the next good one counts."""
    config = tmp_path / "namesrv.toml"
    config.write_text("")
    daemon = start("--config", str(config))
    config.write_text("enable_all_topic_list = false\nmax_connections = 0\nfoo = 1\n")
    daemon.send_signal(signal.SIGHUP)

    problems = daemon.wait_for("reload_refused", level="error")["problems"]
    assert [
        f"unknown key foo in {config}",
        f"max-connections: 0 is not between 1 and 1000000 (from file {config})",
    ] == problems
    assert 0 == connect(daemon).ask(206).code

    config.write_text("enable_all_topic_list = false\n")
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded", changed=1)
    assert 1 == connect(daemon).ask(206).code
    assert daemon.is_running


def test_properties_of_an_apache_server(start: Start, connect: Connect, tmp_path: Path) -> None:
    """Are read again, too."""
    properties = tmp_path / "namesrv.properties"
    properties.write_text("enableAllTopicList=true\n")
    daemon = start("-c", str(properties))
    properties.write_text("enableAllTopicList=false\n")

    daemon.send_signal(signal.SIGHUP)

    daemon.wait_for("reloaded", changed=1)
    assert 1 == connect(daemon).ask(206).code


def test_closed_terminal_ends_a_server_that_ran_in_it(tmp_path: Path) -> None:
    """The kernel sends the same signal; nobody would be left to end it with Ctrl-C."""
    place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", f"--data-dir={tmp_path}"]
    # a terminal belongs to a session only once its first process has opened it
    code = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); from namesrv.cli import main; sys.exit(main())"
    terminal = Terminal([sys.executable, "-c", code, *place])
    with terminal:
        terminal.wait_for("listening")
        terminal.hang_up()
        assert 0 == terminal.wait_until_ended()


def test_reload_in_a_terminal_that_is_there(tmp_path: Path) -> None:
    """A signal that somebody sent is what it says."""
    place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", f"--data-dir={tmp_path}"]
    code = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); from namesrv.cli import main; sys.exit(main())"
    with Terminal([sys.executable, "-c", code, *place]) as terminal:
        terminal.wait_for("listening")
        os.kill(terminal.pid, signal.SIGHUP)
        terminal.wait_for("reloaded")
        terminal.interrupt()
        terminal.wait_for("stopped")
