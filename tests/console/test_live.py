"""What open tabs are told, and when; and what that costs the NameServers."""

from pathlib import Path

from tests.support.console import console
from tests.support.fake_clock import passing
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER


async def test_an_event_is_on_the_screen_within_half_a_second(tmp_path: Path) -> None:
    """A broker registers: the open overview is sent it, and only what of the page has changed."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        tab = shown.tab("/")
        await passing(server.clock, lambda: "ready" in tab.parts.get("chips", ""))

        await peer.register(MASTER)
        took = await passing(server.clock, lambda: "cluster-1/broker-a/0" in tab.parts["oldest"])

        assert took <= 0.5
        assert "chips" not in tab.messages[-1].parts
        tab.leave()
