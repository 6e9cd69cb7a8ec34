"""The packages of agent and client export the types that a typed program needs."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, get_args, get_type_hints

import pytest

import namesrv_broker_agent
import namesrv_client
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_runtime.clock import Clock

# Types that applications neither create nor pass on; methods of the client resolve the mappings of static topics.
_INTERNAL: Final = {Clock, Credentials, TopicQueueMappingInfo}


def _classes(hint: Any) -> Iterator[type]:
    """Our classes in an annotation."""
    if isinstance(hint, type) and hint.__module__.startswith("namesrv"):
        yield hint
    for argument in get_args(hint):
        for each in argument if isinstance(argument, list) else [argument]:
            yield from _classes(each)


def _results(of: type) -> Iterator[Any]:
    """The annotations of public fields, and of the results of public methods and properties, of a class."""
    yield from (hint for name, hint in get_type_hints(of).items() if not name.startswith("_"))
    for name, member in inspect.getmembers(of):
        function: Callable[..., Any] | None = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("namesrv"):
            yield get_type_hints(function).get("return")


@pytest.mark.parametrize("package", [namesrv_broker_agent, namesrv_client], ids=lambda package: package.__name__)
def test_types_of_results_are_exported(package: ModuleType) -> None:
    """Our classes in public fields and results, recursively, can be imported from the package."""
    exported = {value for name in package.__all__ if isinstance(value := getattr(package, name), type)}
    used = {found for each in exported for hint in _results(each) for found in _classes(hint)}

    assert used - exported - _INTERNAL == set()
