"""Private networks behind NAT."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.netns.network import Host, Network, inside, ip, why_not


def why_no_nat() -> str | None:
    """The reason why this machine cannot have NAT between network namespaces, or None."""
    if shutil.which("nft") is None:
        return "NAT needs `nft` (package nftables)"
    return why_not()


def add_private_host(network: Network, name: str, address: str, gateway: Host, ports: Mapping[int, str]) -> Host:
    """Add a host on a network of its own behind `gateway`, which is the first address of that /24.

    Connections of the host leave with the gateway's address. `ports` maps ports of the gateway to addresses with port
    behind it.
    """
    host = network.hosts[name] = Host(network, name, address)
    first = f"{address.rpartition('.')[0]}.1"
    ip("netns", "add", host.namespace)
    ip("-n", host.namespace, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1", "netns", gateway.namespace)
    for namespace, device, own in ((host.namespace, "eth0", address), (gateway.namespace, "eth1", first)):
        ip("-n", namespace, "addr", "add", f"{own}/24", "dev", device)
        ip("-n", namespace, "link", "set", device, "up")
    ip("-n", host.namespace, "link", "set", "lo", "up")
    ip("-n", host.namespace, "route", "add", "default", "via", first)
    rules = "".join(f"    tcp dport {port} dnat to {target}\n" for port, target in ports.items())
    _configure(
        gateway,
        f"""table ip nat {{
  chain prerouting {{
    type nat hook prerouting priority dstnat;
{rules}  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    oifname eth0 masquerade
  }}
}}
""",
    )
    return host


def _configure(gateway: Host, ruleset: str) -> None:
    with inside(gateway):
        subprocess.run(["nft", "-f", "-"], input=ruleset, text=True, check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
