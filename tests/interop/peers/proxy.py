"""Runs Apache's Proxy in cluster mode, in front of brokers that it finds through NameServers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.interop.peers.java import JavaProcess, java_command
from tests.interop.peers.place import class_path
from tests.interop.peers.ports import free_port

_MAIN: Final = "org.apache.rocketmq.proxy.ProxyStartup"
# several JVMs that start at the same moment keep each other waiting
_BOOT_SECONDS: Final = 180.0


class Proxy(JavaProcess):
    """One Proxy process with a home of its own. It needs a broker of the cluster to start."""

    def __init__(self, home: Path, name_servers: Sequence[str], *, cluster: str = "DefaultCluster") -> None:
        (home / "conf").mkdir(parents=True, exist_ok=True)
        config = {
            "rocketMQClusterName": cluster,
            "namesrvAddr": ";".join(name_servers),
            "proxyMode": "CLUSTER",
            "localServeAddr": "127.0.0.1",
            "grpcServerPort": free_port(),
            "remotingListenPort": free_port(),
        }
        (home / "conf" / "rmq-proxy.json").write_text(json.dumps(config), encoding="utf-8")
        flags = (f"-DRMQ_PROXY_HOME={home}", "-XX:MaxDirectMemorySize=256m")
        command = java_command(class_path("proxy-5"), _MAIN, home=home, heap_megabytes=384, flags=flags)
        super().__init__(command, home=home, shown="proxy-5")

    def booted(self) -> Self:
        """Return once it serves."""
        self.wait_for("rocketmq-proxy startup successfully", within=_BOOT_SECONDS)
        return self
