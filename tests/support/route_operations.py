"""Comparison of work that takes time with a model that takes none.

Work under the manager's lock decides when it gets the lock, and acts later. In between anything may happen that needs
no lock, and then the work must see that it comes too late.
"""

from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration
from namesrv.rwlock import ReadWriteLock
from namesrv_remoting.errors import ResponseError
from tests.support.route_model import RouteModel


class Observer(Protocol):
    """Who compares."""

    model: RouteModel

    @property
    def now(self) -> float:
        """Liveness seconds."""

    def is_open(self, connection_id: int) -> bool:
        """Whether a connection has not ended."""

    def model_registers(self, asked: Registration) -> RegisterResult:
        """A registration takes effect."""


class WitnessedLock(ReadWriteLock):
    """A lock that says whose turn it is now."""

    def __init__(self, entered: Callable[[], None]) -> None:
        super().__init__()
        self._entered = entered

    @asynccontextmanager
    async def write(self) -> Any:
        """Enter alone, and say so."""
        async with super().write():
            self._entered()
            yield


class Operation:
    """Work under the lock: when it gets the lock, it decides; what it does is seen in the tables, or when it ends."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.act = act
        # brokers that it decided to remove -> as they were then
        self.leaving: dict[BrokerAddrInfo, BrokerLiveInfo] = {}

    def decide(self, observer: Observer) -> None:
        """It has the lock."""

    def may_remove(self, observer: Observer, key: BrokerAddrInfo) -> bool:
        """Whether a broker that it decided to remove is still to be removed."""
        return True

    def ended(self, observer: Observer, outcome: Any) -> None:
        assert not isinstance(outcome, ResponseError)
        for key in self.leaving:
            assert not self.may_remove(observer, key), f"{key} is still there"


class Register(Operation):
    """103."""

    def __init__(self, asked: Registration, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.asked = asked
        self.refusal: type[ResponseError] | None = None

    def decide(self, observer: Observer) -> None:
        """Refused now or never; another broker at this address goes first."""
        self.refusal = observer.model.refusal(self.asked)
        life = observer.model.lives.get(self.asked.key)
        is_renamed = life is not None and life.broker_name != self.asked.broker_name
        if life is not None and is_renamed and self.refusal is None and observer.is_open(self.asked.connection_id):
            self.leaving[self.asked.key] = life

    def ended(self, observer: Observer, outcome: Any) -> None:
        """It counts if its connection is still open."""
        for key in self.leaving:
            observer.model.remove(key)
        if self.refusal is not None:
            assert self.refusal is type(outcome)
            return
        expected = RegisterResult()
        if observer.is_open(self.asked.connection_id):
            expected = observer.model_registers(self.asked)
        assert expected == outcome


class Unregister(Operation):
    """104."""

    def __init__(self, asked: Registration, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.asked = asked

    def decide(self, observer: Observer) -> None:
        """Only the registration that the broker knows of."""
        asked, life = self.asked, observer.model.lives.get(self.asked.key)
        if life is None or life.broker_name != asked.broker_name or life.connection_id > asked.connection_id:
            return
        is_later = (life.registration_seq or 0) > (asked.registration_seq or 0)
        if asked.agent_id != life.agent_id or (asked.agent_id is not None and is_later):
            return
        self.leaving[asked.key] = life

    def may_remove(self, observer: Observer, key: BrokerAddrInfo) -> bool:
        """Unless it has registered anew."""
        return observer.model.lives[key].generation == self.leaving[key].generation


class Close(Operation):
    """A connection has ended."""

    def __init__(self, connection_id: int, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.connection_id = connection_id

    def decide(self, observer: Observer) -> None:
        """All brokers of the connection."""
        lives = observer.model.lives
        self.leaving = {key: life for key, life in lives.items() if life.connection_id == self.connection_id}

    def may_remove(self, observer: Observer, key: BrokerAddrInfo) -> bool:
        """Unless it was heard over a newer one."""
        return observer.model.lives[key].connection_id == self.connection_id


class Scan(Operation):
    """The scan for silent brokers."""

    def decide(self, observer: Observer) -> None:
        """Who is silent for too long."""
        self.leaving = observer.model.silent(observer.now)

    def may_remove(self, observer: Observer, key: BrokerAddrInfo) -> bool:
        """Unless it was heard in the meantime."""
        return observer.model.lives[key].last_update == self.leaving[key].last_update


class Change(Operation):
    """What operators ask for: takes effect in one step when it ends."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]], on_model: Callable[[RouteModel], Any]) -> None:
        super().__init__(act)
        self.on_model = on_model

    def ended(self, observer: Observer, outcome: Any) -> None:
        assert self.on_model(observer.model) == outcome
