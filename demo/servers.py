"""The demo's NameServers and brokers as processes, and what they log."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from demo.processes import Child
from demo.screen import Screen
from demo.times import Times
from demo.witness import Witness
from namesrv_remoting.codes import MASTER_ID

_BROKER: Final = Path(__file__).with_name("memory_broker.py")
TOPICS: Final = ("orders", "payments")


def called(name: str, broker_id: int) -> str:
    """A broker, as people call it."""
    return name if broker_id == MASTER_ID else f"{name}'s slave {broker_id}"


class NameServer:
    """One `namesrv`, whose log is read and told."""

    def __init__(self, name: str, directory: Path, times: Times, screen: Screen, witness: Witness) -> None:
        self.name = name
        self.address = ""
        self.is_ready = False
        # brokers that it has in its routes, by what it logs
        self.brokers: set[tuple[str, int]] = set()
        self._directory = directory
        self._times = times
        self._screen = screen
        self._witness = witness
        self.child = self._child("127.0.0.1:0")

    @property
    def log_directory(self) -> Path:
        """Where it writes its heartbeat log."""
        return self._directory / "heartbeats"

    def _child(self, address: str) -> Child:
        host, _, port = address.rpartition(":")
        times = self._times
        settings = {
            "listen-host": host,
            "listen-port": port,
            "http-listen": "",
            "nameserver-name": self.name,
            "data-dir": self._directory,
            "heartbeat-log-dir": self.log_directory,
            "broker-expiry-seconds": times.expiry_seconds,
            "scan-interval-seconds": times.scan_seconds,
            "wait-for-service-seconds": times.warm_up_seconds,
            "drain-seconds": times.drain_seconds,
            "log-format": "json",
        }
        flags = [f"--{flag}={value}" for flag, value in settings.items()]
        return Child(self.name, "-m", "namesrv", *flags, heard=self._heard)

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.is_ready = False
        await self.child.kill()

    async def start(self) -> None:
        """Start it, at the same address as before if there was one; it listens when this returns."""
        self.brokers.clear()
        if self.address:
            self.child = self._child(self.address)
            self.address = ""
        await self.child.start()
        await self._witness.until(f"{self.name} listens", lambda: self.address)

    def _heard(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            self._screen.line(self.name, line, is_bad=True)
            return
        told = getattr(self, f"_{entry['event']}", None)
        if told is not None:
            told(entry)
        elif entry["level"] in ("error", "critical"):
            self._screen.line(self.name, f"{entry['event']}: {entry.get('error', '')}", is_bad=True)
        self._witness.tell()

    # -- the events of its log that are told ------------------------------------------------------------------------

    def _listening(self, entry: Mapping[str, Any]) -> None:
        self.address = entry["addresses"][0]
        self.is_ready = entry["ready"]
        self._screen.line(self.name, f"listens on {self.address}")

    def _waiting(self, entry: Mapping[str, Any]) -> None:
        self._screen.line(self.name, f"gives no routes yet: {_reason(entry)}")

    def _ready(self, entry: Mapping[str, Any]) -> None:
        self.is_ready = True
        self._screen.line(self.name, f"gives routes: {_reason(entry)}")

    def _broker_registered(self, entry: Mapping[str, Any]) -> None:
        instance = (entry["broker_name"], entry["broker_id"])
        if instance not in self.brokers:
            self.brokers.add(instance)
            self._screen.line(self.name, f"knows {called(*instance)}")

    def _broker_evicted(self, entry: Mapping[str, Any]) -> None:
        instance = (entry["broker_name"], entry["broker_id"])
        self.brokers.discard(instance)
        after = self._witness.noticed(self.name, instance)
        reason = {
            "silent": f"silent for {entry['silent_ms'] / 1000:.2f} s",
            "disconnected": "its connection was closed",
            "unregistered": "it said goodbye",
        }.get(entry["reason"], entry["reason"])
        when = "" if after is None else f", after {after:.2f} s"
        is_bad = entry["reason"] != "unregistered"
        self._screen.line(self.name, f"drops {called(*instance)}{when}: {reason}", is_bad=is_bad)

    def _stopped(self, entry: Mapping[str, Any]) -> None:  # noqa: ARG002  # as the others
        self._screen.line(self.name, "has stopped")


def _reason(entry: Mapping[str, Any]) -> str:
    """Why it is ready or not, without the list of those who are missing."""
    words: str = entry["reason"].removeprefix("not ").removeprefix("ready: ")
    return words.partition(":")[0]


class Broker:
    """One example broker, with the agent in it."""

    def __init__(self, name: str, broker_id: int, name_servers: str, times: Times, witness: Witness) -> None:
        self.instance = (name, broker_id)
        self.address = ""
        self._witness = witness
        self._flags = [
            f"--cluster=demo --name={name} --id={broker_id} --name-servers={name_servers}",
            f"--heartbeat-seconds={times.heartbeat_seconds} --poll-seconds={times.poll_seconds}",
            " ".join(f"--topic={topic}" for topic in TOPICS),
        ]
        self.child = self._child(0)

    def _child(self, port: str | int) -> Child:
        flags = " ".join([*self._flags, f"--port={port}"]).split()
        return Child(called(*self.instance), str(_BROKER), "serve", *flags, heard=self._heard)

    async def start(self) -> None:
        """Start it, at the same address as before if there was one; it serves when this returns."""
        if self.address:
            self.child = self._child(self.address.rpartition(":")[2])
            self.address = ""
        await self.child.start()
        await self._witness.until(f"{called(*self.instance)} serves", lambda: self.address)

    def _heard(self, line: str) -> None:
        if line.startswith('{"event": "serving"'):
            self.address = json.loads(line)["address"]
        self._witness.tell()
