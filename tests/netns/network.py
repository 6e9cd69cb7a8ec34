"""Several hosts: network namespaces on a bridge, which a test can disconnect one by one.

The bridge lives in a namespace as well, so that its addresses are private, and all namespaces have unique names. Their
processes end with the network.
"""

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

_BRIDGE: Final = "br0"
# `ip netns exec` mounts NAME/hosts of this directory as /etc/hosts.
_ETC: Final = Path("/etc/netns")
# A thousand times the duration of any `ip` command.
_COMMAND_SECONDS: Final = 300
_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_OURS: Final = re.compile(r"(namesrv-(\d+)-[0-9a-f]{6}-\S+)")


def why_not() -> str | None:
    """The reason why this machine cannot have network namespaces, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (package iproute2)"
    probe = f"probe-{secrets.token_hex(4)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    ip("netns", "del", probe)
    return None


class Host:
    """One host: a network namespace with one address."""

    def __init__(self, network: "Network", name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.namespace = f"{network.prefix}-{name}"
        self._network = network

    def command(self, *words: str) -> tuple[str, ...]:
        """The command line that runs a command on this host, in the process of the wrapper."""
        return ("ip", "netns", "exec", self.namespace, *words)

    def cut(self) -> None:
        """Disconnect the host."""
        self._network.set_port(self, "down")

    def mend(self) -> None:
        """Reconnect the host."""
        self._network.set_port(self, "up")

    def __repr__(self) -> str:
        return f"<Host [{self.name} | {self.address}]>"


@contextlib.contextmanager
def inside(host: Host) -> Iterator[None]:
    """Context in which new sockets and processes of this thread are the host's; an event loop runs wholly inside it."""
    there = Path("/run/netns", host.namespace)
    with Path("/proc/thread-self/ns/net").open("rb") as ours, there.open("rb") as theirs:
        _enter(theirs.fileno())
        try:
            yield
        finally:
            _enter(ours.fileno())


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network:
    """Hosts that reach each other by name and address; a context manager that leaves nothing behind."""

    def __init__(self) -> None:
        # Prefix of all namespaces; names of interfaces are unique only within a namespace.
        self.prefix = f"namesrv-{os.getpid()}-{secrets.token_hex(3)}"
        self._switch = f"{self.prefix}-switch"
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        """Make a switch without hosts."""
        _remove_what_killed_tests_left()
        try:
            ip("netns", "add", self._switch)
            ip("-n", self._switch, "link", "add", _BRIDGE, "type", "bridge")
            ip("-n", self._switch, "link", "set", _BRIDGE, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, addresses: Mapping[str, str]) -> None:
        """Add hosts: name -> address, all in one /24."""
        for name, address in addresses.items():
            host = self.hosts[name] = Host(self, name, address)
            ip("netns", "add", host.namespace)
            ip("-n", self._switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            ip("-n", self._switch, "link", "set", name, "master", _BRIDGE, "up")
            ip("-n", host.namespace, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host.namespace, "link", "set", device, "up")
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts.values())
        for host in self.hosts.values():
            hosts_file = _ETC / host.namespace / "hosts"
            hosts_file.parent.mkdir(parents=True, exist_ok=True)
            hosts_file.write_text(f"127.0.0.1 localhost\n{names}")

    def set_port(self, host: Host, state: str) -> None:
        """Switch a host's port off or on, which looks like a pulled cable from both ends."""
        ip("-n", self._switch, "link", "set", host.name, state)

    def __exit__(self, *raised: object) -> None:
        """Kill all processes of the network, and remove it."""
        for namespace in (*(host.namespace for host in self.hosts.values()), self._switch):
            _remove(namespace)
        with contextlib.suppress(OSError):
            # rmdir() fails if the directory has other files.
            _ETC.rmdir()


def _remove(namespace: str) -> None:
    for pid in ip("netns", "pids", namespace, is_checked=False).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    ip("netns", "del", namespace, is_checked=False)
    shutil.rmtree(_ETC / namespace, ignore_errors=True)


def _remove_what_killed_tests_left() -> None:
    """Remove namespaces of killed tests; the names contain the process id."""
    for line in ip("netns", "list").splitlines():
        found = _OURS.match(line)
        if found is not None and not Path(f"/proc/{found[2]}").exists():
            _remove(found[1])


def ip(*words: str, is_checked: bool = True) -> str:
    """The output of an `ip` command. Raises AssertionError if the command fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    assert not is_checked or not done.returncode, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
