"""x"""
from pathlib import Path
import pytest
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import *

@pytest.mark.parametrize("n", range(30))
async def test_x(tmp_path: Path, n:int) -> None:
    async with namesrv_in_process(tmp_path) as s:
        p = await s.connect()
        a = await p.register(Broker())
        print(a)
        for sp in ("json","native"):
            a = await p.call(105, {"topic": "T"}, spelling=sp)
            print(a)
        await s.clock.advance(130)
        assert s.effects==1 or n
