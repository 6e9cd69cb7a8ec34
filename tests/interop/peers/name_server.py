"""Runs Apache's own NameServer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.interop.peers.java import JavaProcess, java_command
from tests.interop.peers.place import class_path
from tests.interop.peers.ports import free_port

_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"


class ApacheNameServer(JavaProcess):
    """One NameServer process with a home of its own; it listens once `booted()` returns.

    Further settings are those of a namesrv.properties.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        heap_megabytes: int = 256,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.port = port or free_port()
        home.mkdir(parents=True, exist_ok=True)
        own = {"listenPort": self.port, "bindAddress": "127.0.0.1", "kvConfigPath": home / "kvConfig.json"}
        lines = [f"{key}={value}\n" for key, value in {**own, **(settings or {})}.items()]
        (home / "namesrv.properties").write_text("".join(lines), encoding="utf-8")
        command = java_command(
            class_path("namesrv-5"),
            _MAIN,
            "-c",
            str(home / "namesrv.properties"),
            home=home,
            heap_megabytes=heap_megabytes,
            flags=(f"-Drocketmq.home.dir={home}",),
        )
        super().__init__(command, home=home, shown=f"namesrv-5 {self.address}")

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def booted(self) -> Self:
        """Return once it listens."""
        self.wait_for("The Name Server boot success")
        return self
