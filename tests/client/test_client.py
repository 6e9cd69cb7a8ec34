"""Does the client serve what it knows, ask what it does not, and say why there is no route?"""

from pathlib import Path

from tests.support.fake_clock import FakeClock
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import BROKER_A, BROKER_B, INFO, PULL, asked, registered, route_client


async def test_route_is_asked_once_and_then_served_from_memory(tmp_path: Path) -> None:
    """The first use of a topic asks a server, the second nobody."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        await registered(server, BROKER_A, BROKER_B)
        async with route_client(clock, server) as client:
            first = await client.route("orders")
            second = await client.route("orders")

            assert ["broker-a", "broker-b"] == [data.broker_name for data in first.data.broker_datas]
            assert first == second
            assert (1, 1) == (asked(server, INFO), asked(server, PULL))
