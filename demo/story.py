"""The story of the demo, scene by scene."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from demo.cluster import Cluster

# Pause between two events, so that a reader can follow.
_LOOK_SECONDS: Final = 1.5
# Share of its expiry for which a broker pauses: with the interval before the next heartbeat, less than the expiry.
_PAUSE_SHARE: Final = 0.5


def kill(cluster: Cluster) -> None:
    """A broker process is killed: its connections close, and the servers notice at once."""
    instance = ("broker-b", 0)
    cluster.screen.lose("kill broker-b", instance)
    cluster.brokers[instance].kill()
    cluster.gone_everywhere(instance)
    cluster.screen.pause(_LOOK_SECONDS)
    cluster.screen.line("you", "start broker-b again")
    cluster.start_broker(instance)
    cluster.known_everywhere()


def pause(cluster: Cluster) -> None:
    """A broker pauses, as in a long garbage collection, for less than its expiry: no server evicts the broker."""
    cluster.screen.line("you", "freeze broker-b: the broker pauses")
    with cluster.brokers["broker-b", 0].frozen():
        cluster.screen.pause(cluster.times[120] * _PAUSE_SHARE)
        cluster.screen.line("you", "thaw broker-b: no server has evicted it; a shorter expiry would have")
    cluster.known_everywhere()


def freeze(cluster: Cluster) -> None:
    """A broker hangs: its connections stay open, so the servers evict the broker only after its expiry."""
    instance = ("broker-c", 0)
    cluster.screen.lose("freeze broker-c: the broker hangs, and its connections stay open", instance)
    cluster.brokers[instance].freeze()
    cluster.gone_everywhere(instance)
    cluster.screen.pause(_LOOK_SECONDS)
    cluster.screen.line("you", "kill broker-c, and start it again")
    cluster.brokers[instance].kill()
    cluster.start_broker(instance)
    cluster.known_everywhere()


def nameserver(cluster: Cluster) -> None:
    """A NameServer restarts: clients use the other server, and the restarted one waits for the brokers it knew."""
    chosen = cluster.producer.client.chosen_server
    name = next((name for name, server in cluster.servers.items() if server.address == chosen), "ns1")
    cluster.screen.line("you", f"stop {name}")
    cluster.stop_server(name)
    cluster.screen.pause(_LOOK_SECONDS)
    cluster.screen.line("you", f"start {name} again")
    cluster.servers[name].start()
    cluster.known_everywhere()


def blackout(cluster: Cluster) -> None:
    """All NameServers are down: producers and consumers continue with the routes that they have."""
    cluster.screen.line("you", "stop ns1 and ns2")
    before = cluster.sent
    for name in cluster.servers:
        cluster.stop_server(name)
    cluster.screen.pause(2 * _LOOK_SECONDS)
    cluster.screen.line("producer", f"has sent {cluster.sent - before} messages without a NameServer")
    cluster.screen.line("you", "start ns1 and ns2 again")
    for name in cluster.servers:
        cluster.servers[name].start()
    cluster.known_everywhere()


def drain(cluster: Cluster) -> None:
    """A broker drains: its topics become read-only, then the broker unregisters. Its slave stays."""
    instance = ("broker-a", 0)
    loss = cluster.screen.lose("drain broker-a", instance)
    cluster.brokers[instance].drain()
    cluster.gone_everywhere(instance)
    cluster.screen.line("you", f"broker-a has left, {max(loss.noticed.values()):.2f} s after the drain began")


SCENES: Final[Mapping[str, Callable[[Cluster], None]]] = MappingProxyType(
    {"kill": kill, "pause": pause, "freeze": freeze, "nameserver": nameserver, "blackout": blackout, "drain": drain}
)


def play(cluster: Cluster, scenes: list[str]) -> None:
    """Play scenes, after all servers and clients know all brokers."""
    cluster.known_everywhere()
    cluster.screen.line("producer", "sends 20 messages a second, and watches its routes: servers push changes at once")
    cluster.screen.line("consumer", f"polls its routes every {cluster.times[30]:g} s")
    cluster.screen.pause(_LOOK_SECONDS)
    for name in scenes:
        cluster.screen.heading((SCENES[name].__doc__ or "").strip())
        SCENES[name](cluster)
        cluster.screen.pause(_LOOK_SECONDS)
