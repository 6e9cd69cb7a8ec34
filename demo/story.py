"""The story of the demo, scene by scene."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from demo.cluster import Cluster

# pause between two events, so that a reader can follow
_LOOK_SECONDS: Final = 1.5
# Share of its expiry for which a broker pauses: with the interval before the next heartbeat, less than the expiry.
_PAUSE_SHARE: Final = 0.5


def kill(cluster: Cluster) -> None:
    """A broker is gone from one moment to the next: its connections close, which servers notice at once."""
    instance = ("broker-b", 0)
    cluster.screen.lose("kill broker-b", instance)
    cluster.brokers[instance].kill()
    cluster.gone_everywhere(instance)
    cluster.screen.pause(_LOOK_SECONDS)
    cluster.screen.line("you", "start broker-b again")
    cluster.start_broker(instance)
    cluster.known_everywhere()


def pause(cluster: Cluster) -> None:
    """A broker pauses, as in a long garbage collection, but for less than its expiry: no server evicts it."""
    cluster.screen.line("you", "freeze broker-b: it pauses")
    with cluster.brokers["broker-b", 0].frozen():
        cluster.screen.pause(cluster.times[120] * _PAUSE_SHARE)
        cluster.screen.line("you", "thaw broker-b: it is still known; a shorter expiry would have evicted it")
    cluster.known_everywhere()


def freeze(cluster: Cluster) -> None:
    """A broker hangs for good: its connections stay open, and only its silence shows. The bound is about this."""
    instance = ("broker-c", 0)
    cluster.screen.lose("freeze broker-c: it hangs, and its connections stay open", instance)
    cluster.brokers[instance].freeze()
    cluster.gone_everywhere(instance)
    cluster.screen.pause(_LOOK_SECONDS)
    cluster.screen.line("you", "kill broker-c, and start it again")
    cluster.brokers[instance].kill()
    cluster.start_broker(instance)
    cluster.known_everywhere()


def nameserver(cluster: Cluster) -> None:
    """A NameServer goes and comes back: clients use the other one, and it waits for the brokers that it knew."""
    chosen = cluster.producer.client.chosen_server
    name = next((name for name, server in cluster.servers.items() if server.address == chosen), "ns1")
    cluster.screen.line("you", f"stop {name}")
    cluster.stop_server(name)
    cluster.screen.pause(_LOOK_SECONDS)
    cluster.screen.line("you", f"start {name} again")
    cluster.servers[name].start()
    cluster.known_everywhere()


def blackout(cluster: Cluster) -> None:
    """All NameServers are gone: producers and consumers go on with what they know."""
    cluster.screen.line("you", "stop ns1 and ns2")
    before = cluster.sent
    for name in cluster.servers:
        cluster.stop_server(name)
    cluster.screen.pause(2 * _LOOK_SECONDS)
    cluster.screen.line("producer", f"has sent {cluster.sent - before} messages meanwhile")
    cluster.screen.line("you", "start ns1 and ns2 again")
    for name in cluster.servers:
        cluster.servers[name].start()
    cluster.known_everywhere()


def drain(cluster: Cluster) -> None:
    """A broker leaves gracefully: first it takes no more messages, then it unregisters. Its slave stays."""
    instance = ("broker-a", 0)
    loss = cluster.screen.lose("drain broker-a", instance)
    cluster.brokers[instance].drain()
    cluster.gone_everywhere(instance)
    cluster.screen.line("you", f"broker-a has left, {max(loss.noticed.values()):.2f} s after it began to")


SCENES: Final[Mapping[str, Callable[[Cluster], None]]] = MappingProxyType(
    {"kill": kill, "pause": pause, "freeze": freeze, "nameserver": nameserver, "blackout": blackout, "drain": drain}
)


def play(cluster: Cluster, scenes: list[str]) -> None:
    """Once all have found each other: these scenes."""
    cluster.known_everywhere()
    cluster.screen.line("producer", "sends 20 messages a second, and watches: it is notified of changes at once")
    cluster.screen.line("consumer", f"polls: it requests its routes every {cluster.times[30]:g} s")
    cluster.screen.pause(_LOOK_SECONDS)
    for name in scenes:
        cluster.screen.heading((SCENES[name].__doc__ or "").strip())
        SCENES[name](cluster)
        cluster.screen.pause(_LOOK_SECONDS)
