"""The actions: the fields, the changes on a server, the request and the equal command of each."""

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from namesrv_client.ctl import PROGRAM
from namesrv_client.ctl.comparison import perm_text
from namesrv_client.ctl.nameserver import NameServer
from namesrv_remoting.bodies.properties import format_properties
from namesrv_remoting.codes import Permission, RequestCode
from namesrv_remoting.errors import LocalProtocolError

T = TypeVar("T")
Fields = Mapping[str, str]

_READ: Final = perm_text(Permission.READ)
_WRITE: Final = perm_text(Permission.READ | Permission.WRITE)
# These characters need a backslash inside a shell's $'…'.
_BACKSLASHED: Final = frozenset("\\'")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one thing on one server, before and after; None: the thing does not exist."""

    what: str
    before: str | None
    after: str | None
    # Number of topics that the change affects.
    topics: int | None = None
    # False: the server does not report the value before the change.
    knows_before: bool = True


@dataclass(frozen=True, slots=True)
class Action:
    """An action; it has the name of namesrvctl's command."""

    name: str
    request: RequestCode
    # Fields that a user fills in, in the order of the command's arguments; the last ones may be empty.
    fields: tuple[str, ...]
    # Name of the field that the user types again to confirm.
    confirmed: str
    # Name of the changed thing in an audit line.
    what: str
    # Returns the changes that the action would make on a server. Raises RemotingError.
    changes: Callable[[NameServer, Fields], Awaitable[list[Change]]]
    header: Callable[[Fields], dict[str, str]]
    body: Callable[[Fields], bytes] = lambda _: b""
    may_be_empty: frozenset[str] = frozenset()

    def complete(self, given: Mapping[str, str]) -> Fields | None:
        """The fields, if every required field has a value, else None."""
        fields = {name: given.get(name, "") for name in self.fields}
        return fields if all(fields[name] or name in self.may_be_empty for name in self.fields) else None

    async def perform(self, server: NameServer, fields: Fields, operator: str) -> None:
        """Send the action to one server, whose log then has the operator's name. Raises RemotingError."""
        await server.ask(self.request, {**self.header(fields), "operator": operator}, self.body(fields))


async def _permissions(server: NameServer, broker: str, after: str) -> list[Change]:
    found = []
    for live in await server.brokers(broker_name=broker):
        before = None if live.write_removed is None else _READ if live.write_removed else _WRITE
        name = f"{live.cluster}/{live.broker_name}/{live.broker_id}"
        # Apache's server does not report removed write permissions.
        found.append(Change(name, before, after, live.topics, knows_before=before is not None))
    return found


async def _write_permission_removal(server: NameServer, fields: Fields) -> list[Change]:
    return await _permissions(server, fields["broker"], _READ)


async def _writable(server: NameServer, fields: Fields) -> list[Change]:
    return await _permissions(server, fields["broker"], _WRITE)


async def _without_topic(server: NameServer, fields: Fields) -> list[Change]:
    topic = fields["topic"]
    route = (await server.routes([topic]))[topic]
    return [
        Change(it.broker_name, f"{it.read_queue_nums}/{it.write_queue_nums} {perm_text(it.perm)}", None)
        for it in sorted(() if route is None else route.queue_datas, key=lambda it: it.broker_name)
    ]


async def _put(server: NameServer, fields: Fields) -> list[Change]:
    before = await server.kv_get(fields["namespace"], fields["key"])
    return [Change(fields["key"], before, fields["value"])]


async def _without_key(server: NameServer, fields: Fields) -> list[Change]:
    before = await server.kv_get(fields["namespace"], fields["key"])
    return [] if before is None else [Change(fields["key"], before, None)]


async def _set(server: NameServer, fields: Fields) -> list[Change]:
    key = fields["key"]
    setting = next((setting for setting in await server.settings() if setting.key == key), None)
    if setting is None:
        # A server ignores such a key, and reports success.
        raise LocalProtocolError(f"no setting {key}")
    # Apache's server does not report how a setting is changed.
    if setting.changed_by not in (None, "request"):
        raise LocalProtocolError(f"setting {key} cannot be changed by a request")
    return [Change(key, setting.value, fields["value"])]


ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for action in (
        Action(
            "wipe-write-perm",
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            ("broker",),
            "broker",
            "write_permission",
            _write_permission_removal,
            lambda fields: {"brokerName": fields["broker"]},
        ),
        Action(
            "add-write-perm",
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            ("broker",),
            "broker",
            "write_permission",
            _writable,
            lambda fields: {"brokerName": fields["broker"]},
        ),
        Action(
            "delete-topic",
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            ("topic",),
            "topic",
            "topic",
            _without_topic,
            lambda fields: {"topic": fields["topic"]},
        ),
        Action(
            "kv-put",
            RequestCode.PUT_KV_CONFIG,
            ("namespace", "key", "value"),
            "key",
            "kv",
            _put,
            dict,
            may_be_empty=frozenset({"value"}),
        ),
        Action("kv-delete", RequestCode.DELETE_KV_CONFIG, ("namespace", "key"), "key", "kv", _without_key, dict),
        Action(
            "config-set",
            RequestCode.UPDATE_NAMESRV_CONFIG,
            ("key", "value"),
            "key",
            "setting",
            _set,
            lambda _: {},
            lambda fields: format_properties({fields["key"]: fields["value"]}).encode(),
        ),
    )
}


def command(action: Action, servers: Iterable[str], fields: Fields, *, options: Sequence[str] = ()) -> str:
    """The action as a shell command; each name is one word, and its control characters do not act on a terminal."""
    arguments = [fields[name] for name in action.fields]
    if action.name == "config-set":
        arguments = ["=".join(arguments)]
    group, dash, verb = action.name.partition("-")
    words = [group, verb] if dash and group in {"kv", "config"} else [action.name]
    options_of_servers = [word for server in servers for word in ("-s", server)]
    ends_options = ["--"] if any(argument.startswith("-") for argument in arguments) else []
    return " ".join(map(_word, [PROGRAM, *options_of_servers, *options, *words, *ends_options, *arguments]))


def _word(text: str) -> str:
    if text.isprintable():
        return shlex.quote(text)
    # Text in plain quotes would keep its control characters, and a terminal into which it is pasted would act on them.
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in _BACKSLASHED:
        return f"\\{character}"
    return character if character.isprintable() else "".join(f"\\x{byte:02x}" for byte in character.encode())
