"""Runs many commands of mqadmin in one process."""

import json
from pathlib import Path

from tests.interop.peers.java import JavaProcess, java_command
from tests.interop.peers.mqadmin import Output
from tests.interop.peers.place import INTEROP, class_path


class AdminShell(JavaProcess):
    """mqadmin with the address of a NameServer; see AdminShell.java."""

    def __init__(self, home: Path, name_server: str) -> None:
        self.name_server = name_server
        self._asked = 0
        classes = f"{INTEROP / 'java' / 'classes'}:{class_path('tools-5')}"
        command = java_command(classes, "AdminShell", home=home, flags=(f"-Drocketmq.home.dir={home}",))
        super().__init__(command, home=home, shown=f"mqadmin {name_server}")

    def __call__(self, *words: str) -> Output:
        """Run a command; what it printed, be it right or wrong."""
        self._asked += 1
        self.tell(" ".join([*words, "-n", self.name_server]))
        self.wait_until(lambda: len(self.lines) >= self._asked)
        said = json.loads(self.lines[self._asked - 1])
        return Output(0, said["stdout"], said["stderr"])
