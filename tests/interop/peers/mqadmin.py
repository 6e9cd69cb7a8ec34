"""Runs Apache's mqadmin."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.peers.java import java_command
from tests.interop.peers.place import class_path
from tests.interop.peers.waiting import GUARD_SECONDS

_MAIN: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"


@dataclass(frozen=True, slots=True)
class Output:
    """What a run of mqadmin left."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line of a table, without its head, which starts with `#`."""
        lines = self.stdout.splitlines()
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]


class MqAdmin:
    """mqadmin with the addresses of some NameServers; each call is a process of its own."""

    def __init__(self, home: Path, name_servers: Sequence[str]) -> None:
        self._home = home
        self.name_servers = tuple(name_servers)

    def __call__(self, command: str, *args: str) -> Output:
        """Run a command; what it printed, be it right or wrong."""
        line = java_command(
            class_path("tools-5"),
            _MAIN,
            command,
            *args,
            "-n",
            ";".join(self.name_servers),
            home=self._home,
            flags=(f"-Drocketmq.home.dir={self._home}",),
        )
        done = subprocess.run(line, capture_output=True, text=True, cwd=self._home, timeout=GUARD_SECONDS, check=False)
        return Output(done.returncode, done.stdout, done.stderr)

    def succeed(self, command: str, *args: str) -> Output:
        """Run a command that has to succeed.

        Raises:
            AssertionError: it says that it did not; mqadmin's exit code is mostly 0 whatever happened.
        """
        output = self(command, *args)
        said = output.stdout + output.stderr
        assert output.exit_code == 0, output
        assert "Exception" not in said, output
        return output
