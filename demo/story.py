"""The demo's plot, scene by scene."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from demo.stage import Stage

# what the eye needs between two things
_LOOK_SECONDS: Final = 1.5
# of its expiry, for how long a broker may pause: with the heartbeat that was due, it stays below the whole
_PAUSE_SHARE: Final = 0.5


async def opening(stage: Stage) -> None:
    """Everybody finds everybody."""
    await stage.known_everywhere(stage.brokers)
    stage.producer.say("sends 20 messages a second, and watches: it is told of changes at once")
    stage.consumer.say(f"reads them, and polls: it asks every {stage.times.poll_seconds:g} s")
    await asyncio.sleep(_LOOK_SECONDS)


async def kill(stage: Stage) -> None:
    """A broker's process is gone from one moment to the next: its connections close, and that is noticed at once."""
    broker = stage.brokers["broker-b", 0]
    stage.screen.line("you", "kill -9 broker-b")
    stage.witness.begin("kill -9 broker-b", broker.instance)
    await broker.child.kill()
    await stage.gone_everywhere(broker.instance)
    await asyncio.sleep(_LOOK_SECONDS)
    stage.screen.line("you", "start broker-b again")
    await broker.start()
    await stage.known_everywhere(stage.brokers)
    await asyncio.sleep(_LOOK_SECONDS)


async def pause(stage: Stage) -> None:
    """A broker pauses, as in a long garbage collection, but for less than its expiry: nobody throws it out."""
    broker = stage.brokers["broker-b", 0]
    stage.screen.line("you", "kill -STOP broker-b: it pauses")
    broker.child.send(signal.SIGSTOP)
    await asyncio.sleep(stage.times.expiry_seconds * _PAUSE_SHARE)
    stage.screen.line("you", "kill -CONT broker-b: it is still known; a shorter expiry would have thrown it out")
    broker.child.send(signal.SIGCONT)
    await stage.known_everywhere(stage.brokers)
    await asyncio.sleep(_LOOK_SECONDS)


async def freeze(stage: Stage) -> None:
    """A broker hangs for good: its connections stay open, and only its silence tells. The bound is about this."""
    broker = stage.brokers["broker-c", 0]
    stage.screen.line("you", "kill -STOP broker-c: it hangs, and its connections stay open")
    stage.witness.begin("kill -STOP broker-c", broker.instance)
    broker.child.send(signal.SIGSTOP)
    await stage.gone_everywhere(broker.instance)
    await asyncio.sleep(_LOOK_SECONDS)
    stage.screen.line("you", "kill -9 broker-c, and start it again")
    await broker.child.kill()
    await broker.start()
    await stage.known_everywhere(stage.brokers)
    await asyncio.sleep(_LOOK_SECONDS)


async def nameserver(stage: Stage) -> None:
    """A NameServer dies and comes back: clients ask the other one, and it waits for the brokers that it knew."""
    server = stage.producer.server or stage.servers["ns1"]
    stage.screen.line("you", f"kill -9 {server.name}")
    await server.kill()
    await asyncio.sleep(_LOOK_SECONDS)
    stage.screen.line("you", f"start {server.name} again")
    await server.start()
    await stage.known_everywhere(stage.brokers)
    await asyncio.sleep(_LOOK_SECONDS)


async def blackout(stage: Stage) -> None:
    """All NameServers are gone: producers and consumers go on with what they know."""
    stage.screen.line("you", "kill -9 ns1 ns2")
    before = stage.producer.sent
    for server in stage.servers.values():
        await server.kill()
    await asyncio.sleep(2 * _LOOK_SECONDS)
    stage.producer.say(f"has sent {stage.producer.sent - before} messages meanwhile")
    stage.screen.line("you", "start ns1 and ns2 again")
    for server in stage.servers.values():
        await server.start()
    await stage.known_everywhere(stage.brokers)
    await asyncio.sleep(_LOOK_SECONDS)


async def drain(stage: Stage) -> None:
    """A broker leaves in good order: first nobody sends to it any more, then it says goodbye. Its slave stays."""
    broker = stage.brokers["broker-a", 0]
    stage.screen.line("you", "kill -USR1 broker-a: drain it")
    loss = stage.witness.begin("drain broker-a", broker.instance)
    broker.child.send(signal.SIGUSR1)
    await stage.gone_everywhere(broker.instance)
    await broker.child.ended()
    stage.screen.line("you", f"broker-a has ended by itself, {max(loss.noticed.values()):.2f} s after it was told to")
    await asyncio.sleep(_LOOK_SECONDS)


SCENES: Final[Mapping[str, Callable[[Stage], Awaitable[None]]]] = MappingProxyType(
    {"kill": kill, "pause": pause, "freeze": freeze, "nameserver": nameserver, "blackout": blackout, "drain": drain}
)


async def play(stage: Stage, scenes: list[str]) -> None:
    """Once everybody has found everybody: these scenes, and the end."""
    await opening(stage)
    for name in scenes:
        scene = SCENES[name]
        stage.screen.heading((scene.__doc__ or "").strip())
        await scene(stage)
    stage.screen.heading("That is all: everything is stopped now.")
