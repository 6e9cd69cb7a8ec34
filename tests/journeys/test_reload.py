"""SIGHUP changes the settings that can change at run time, and no other ones."""

import os
import signal
import sys
from pathlib import Path

from tests.support.daemon import Start
from tests.support.peer import Broker, Connect
from tests.support.terminal import Terminal


def test_reload(start: Start, connect: Connect, tmp_path: Path) -> None:
    """After a reload the changeable settings are in effect, the others are named in the log, and connections stay."""
    config = tmp_path / "namesrv.toml"
    config.write_text("enable_all_topic_list = true\n")
    daemon = start("--config", str(config), "--max-connections", "50")
    peer = connect(daemon)
    Broker().register(peer)
    assert peer.ask(206).code == 0

    config.write_text(
        "enable_all_topic_list = false\nlisten_port = 1\nscan_interval_seconds = 5\nlog_level = 'debug'\n"
    )
    daemon.send_signal(signal.SIGHUP)

    assert tuple(daemon.wait_for("reloaded")[name] for name in ("changed", "need_restart")) == (2, 1)
    changed = daemon.wait_for("setting_changed", setting="enable_all_topic_list")
    assert (changed["old"], changed["new"], changed["origin"]) == (True, False, f"file {config}")
    # The port comes from a flag, which wins over the file, as at the start.
    needs = daemon.wait_for("setting_needs_restart")
    assert (needs["setting"], needs["old"], needs["new"]) == ("scan_interval_seconds", 10.0, 5.0)
    assert peer.ask(206).code == 1
    assert peer.ask(105, {"topic": "orders"}).code == 0
    # At the level debug each connection is logged.
    address = connect(daemon).address
    daemon.wait_for("connection_opened", peer=address)


def test_bad_file(start: Start, connect: Connect, tmp_path: Path) -> None:
    """A bad file changes nothing and is logged with its error; the next good one counts, also Apache's properties."""
    config, properties = tmp_path / "namesrv.toml", tmp_path / "namesrv.properties"
    config.write_text("")
    properties.write_text("orderMessageEnable=false\n")
    daemon = start("--config", str(config), "-c", str(properties))
    config.write_text("enable_all_topic_list = false\nmax_connections = 0\nfoo = 1\n")
    daemon.send_signal(signal.SIGHUP)

    problems = daemon.wait_for("reload_refused", level="error")["problems"]
    assert problems == [
        f"unknown key foo in {config}",
        f"max-connections: 0 is not between 1 and 1000000 (from file {config})",
    ]
    assert connect(daemon).ask(206).code == 0

    config.write_text("enable_all_topic_list = false\n")
    properties.write_text("orderMessageEnable=true\n")
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded", changed=2)
    daemon.wait_for("setting_changed", setting="order_message_enable", new=True)
    assert connect(daemon).ask(206).code == 1


PLACE = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen="]
# A terminal belongs to a session only after the session's first process has opened it.
CODE = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); from namesrv.cli import main; sys.exit(main())"


def test_terminal(tmp_path: Path) -> None:
    """SIGHUP of a process reloads; SIGHUP of the kernel, whose terminal has closed, ends the server.

    Without its terminal the server could not be ended with Ctrl-C.
    """
    with Terminal([sys.executable, "-c", CODE, *PLACE, f"--data-dir={tmp_path}"]) as terminal:
        terminal.wait_for("listening")
        os.kill(terminal.pid, signal.SIGHUP)
        terminal.wait_for("reloaded")
        terminal.hang_up()
        assert terminal.wait() == 0
