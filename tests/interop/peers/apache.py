"""Runs Apache's own NameServer, controller, Proxy and mqadmin."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.interop.peers.java import BOOT_SECONDS, JavaProcess
from tests.interop.peers.waiting import GUARD_SECONDS
from tests.support.ports import free_port

# runs of a command whose requests time out, with RocketMQ's error
_MOST_RUNS: Final = 3
_TIMED_OUT: Final = "RemotingTimeoutException"


class ApacheNameServer(JavaProcess):
    """Apache's NameServer, which listens once `booted()` returns; settings have the names of namesrv.properties."""

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.port = port or free_port()
        own = {"listenPort": self.port, "bindAddress": "127.0.0.1", "kvConfigPath": home / "kvConfig.json"}
        file = home / "namesrv.properties"
        home.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{key}={value}\n" for key, value in {**own, **(settings or {})}.items()))
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        super().__init__(home, "namesrv-5", main, "-c", str(file), flags=flags)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def booted(self) -> Self:
        self.wait_for("The Name Server boot success", within=GUARD_SECONDS)
        return self


class Controller(JavaProcess):
    """A controller, which elects the masters of brokers with `enableControllerMode`, in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        # One server of the consensus protocol, and a scan for dead brokers every second.
        settings = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "store",
            "scanNotActiveBrokerInterval": 1000,
        }
        home.mkdir(parents=True)
        file = home / "controller.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        super().__init__(home, "namesrv-5", "org.apache.rocketmq.controller.ControllerStartup", "-c", str(file))

    def booted(self) -> Self:
        self.wait_for("The Controller Server boot success", within=BOOT_SECONDS)
        return self


class Proxy(JavaProcess):
    """A Proxy in cluster mode, which starts only if it finds a broker of its cluster through the NameServers."""

    def __init__(self, home: Path, name_servers: Sequence[str]) -> None:
        self.grpc_address = f"127.0.0.1:{free_port()}"
        config = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": ";".join(name_servers),
            "proxyMode": "CLUSTER",
            "localServeAddr": "127.0.0.1",
            "grpcServerPort": int(self.grpc_address.rpartition(":")[2]),
            "remotingListenPort": free_port(),
        }
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "rmq-proxy.json").write_text(json.dumps(config))
        flags = (f"-DRMQ_PROXY_HOME={home}", "-XX:MaxDirectMemorySize=256m")
        super().__init__(home, "proxy-5", "org.apache.rocketmq.proxy.ProxyStartup", heap_megabytes=384, flags=flags)

    def booted(self) -> Self:
        self.wait_for("rocketmq-proxy startup successfully", within=BOOT_SECONDS)
        return self


class Output(NamedTuple):
    """The output of an mqadmin command."""

    stdout: str
    stderr: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line of a table, without its head, which starts with `#`."""
        return [line.split() for line in self.stdout.splitlines() if line.strip() and not line.startswith("#")]


class MqAdmin(JavaProcess):
    """Many commands of mqadmin in one process, with the addresses of some NameServers; see AdminShell.java."""

    def __init__(self, home: Path, *name_servers: str, flags: Sequence[str] = ()) -> None:
        self._name_servers = ";".join(name_servers)
        self._asked = 0
        super().__init__(home, "tools-5", "AdminShell", flags=flags)

    def __call__(self, *words: str) -> Output:
        """Run a command, and return its output, also after an error; again if a request took longer than 5 s.

        That is RocketMQ's own timeout, and too short for a machine on which other tests start brokers.
        """
        for _ in range(_MOST_RUNS - 1):
            output = self._run(words)
            if _TIMED_OUT not in output.stdout + output.stderr:
                return output
        return self._run(words)

    def _run(self, words: Sequence[str]) -> Output:
        self._asked += 1
        self.write_line(" ".join([*words, "-n", self._name_servers]))
        self.wait_until(lambda: len(self.lines) >= self._asked, within=GUARD_SECONDS)
        return Output(**json.loads(self.lines[self._asked - 1]))

    def succeed(self, *words: str) -> Output:
        """Run a command, and return its output.

        Raises:
            AssertionError: the command reports a failure.
        """
        output = self(*words)
        assert "Exception" not in output.stdout + output.stderr, output
        return output

    def make_topics(self, broker_addr: str, *topics: str, read: int = 4, write: int = 4) -> None:
        """Create topics on a broker with one command, since each command starts a client of its own."""
        configs = [{"topicName": topic, "readQueueNums": read, "writeQueueNums": write, "perm": 6} for topic in topics]
        file = self.home / "topics.json"
        file.write_text(json.dumps(configs), encoding="utf-8")
        self.succeed("updateTopicList", "-b", broker_addr, "-f", str(file))
