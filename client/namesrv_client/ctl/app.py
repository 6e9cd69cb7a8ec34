"""All commands of namesrvctl, by name."""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]  # not declared
from typer.core import TyperCommand, TyperGroup

from namesrv_client.ctl.registering import command, group, plain_errors

# completion_init sets up what typer does for its options --install-completion and --show-completion, which the command
# `completion` replaces: the program then answers the printed completion scripts.
completion_init()

# Commands by name; a name of two words is a command of a group. Each has its module and function in `commands`, and the
# first paragraph of the function's docstring, so that listing the commands imports none of them.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "status": ("brokers:status", "Show whether each NameServer answers and is ready, and how much it knows."),
    "brokers": (
        "brokers:brokers",
        "List live brokers: when each was last seen, when it expires, and the state that it reports.",
    ),
    "clusters": ("brokers:clusters", "List clusters and their broker groups."),
    "topics": ("topics:topics", "List all topics."),
    "route": ("topics:route", "Show where the queues of topics are."),
    "whoami": ("access:whoami", "Show the account under which each server knows you, and its permissions."),
    "connections": (
        "brokers:connections",
        "List connections: since when they are open, how many requests they sent, how many bytes are unsent.",
    ),
    "events": (
        "following:events",
        "Show the last registrations, evictions and route changes; a server remembers 1,000.",
    ),
    "history": (
        "history:history",
        "Show how the route of a topic changed, from the servers' last events or from heartbeat logs.",
    ),
    "watch": ("following:watch", "Show the routes of topics, then every change as it happens, until Ctrl-C."),
    "top": (
        "top:top",
        "Show live when each broker was last seen and when it expires, on all servers side by side, until Ctrl-C.",
    ),
    "audit": ("audit:audit", "Show the changes and refusals of a server, with account and address."),
    "explain": (
        "explain:explain",
        "Show when each broker of a topic's route was last seen and when it expires, on each server.",
    ),
    "diff": ("diff:diff", "Compare NameServers: brokers (addresses, zone) and topics (queues, permissions, order)."),
    "migrate check": (
        "migrate:check",
        "Compare the tables and responses of NameServers in RocketMQ's protocol, before one replaces another.",
    ),
    "bench": ("bench:bench", "Measure how fast each server answers route requests."),
    "wipe-write-perm": (
        "brokers:wipe_write_perm",
        "Remove the write permission from all topics of a broker, so that producers leave it.",
    ),
    "add-write-perm": (
        "brokers:add_write_perm",
        "Make all topics of a broker readable and writable, also those that were read-only before.",
    ),
    "delete-topic": (
        "topics:delete_topic",
        "Delete a topic from every server. Brokers that still have it register it again within 30 s.",
    ),
    "completion": ("completion:completion", "Print the completion script for a shell."),
    "context add": (
        "context:add",
        "Save servers and connection options under a name, from the options or else the environment.",
    ),
    "context use": (
        "context:use",
        "Use a context in commands without --server, --context and NAMESRV_ADDR.",
    ),
    "context list": ("context:show_contexts", "List the saved contexts."),
    "context show": ("context:show_context", "Show a saved context; default: the one in use."),
    "context remove": ("context:remove", "Delete a context. Files that it names are kept."),
    "kv get": ("config:kv_get", "Show one value. Exits with 1 if a server that answered has none."),
    "kv put": ("config:kv_put", "Set a value on every server. Exits with 1 if one of them did not accept it."),
    "kv delete": (
        "config:kv_delete",
        "Remove a value from every server; it may be absent. Exits with 1 if one of them refused.",
    ),
    "kv list": (
        "config:kv_list",
        "Show a whole namespace. Exits with 1 if a server that answered has none of that name.",
    ),
    "config show": (
        "config:show_config",
        "Show the settings in effect, by their names in Apache's namesrv.properties.",
    ),
    "config set": (
        "config:set_config",
        "Change settings of running servers; ours require --admin-enabled or an access file.",
    ),
    "access check": (
        "access:check",
        "Check an access file, and list its accounts. Exits with 1 if a server would refuse it.",
    ),
    "access explain": ("access:explain", "Explain whether an account may send a request. Exits with 1 if it may not."),
    "access reserved": (
        "access:reserved",
        "List broker names and addresses that are reserved for the account that held them last.",
    ),
    "views check": (
        "views:check",
        "Check an address views file, and list its views. Exits with 1 if a server would refuse it.",
    ),
    "views explain": (
        "views:explain",
        "Show which address of each registered broker a peer gets, and by which view of a file.",
    ),
    "access keygen": (
        "access:keygen",
        "Make an access key and secret, and print them as lines for the access file and the environment.",
    ),
}
_GROUPS: Final = {
    "context": "Save servers and connection options under names.",
    "kv": "Read and change the key-value config.",
    "config": "Read and change settings of running servers.",
    "access": "Check access files, make keys for them, and list reserved places.",
    "views": "Check address views files, and show the addresses that a peer gets.",
    "migrate": "Replace one NameServer by another.",
}


def function_of(target: str) -> Callable[..., None]:
    """The function of a command."""
    module, _, name = target.partition(":")
    function: Callable[..., None] = getattr(import_module(f"namesrv_client.ctl.commands.{module}"), name)
    return function


class _Later(TyperCommand):
    """A command of which only name and summary are known until it is called, completed, or asked for help."""

    def make_context(self, *args: Any, **values: Any) -> Any:
        """The context of the real command, which is built here."""
        assert self.callback is not None  # noqa: S101 - for mypy
        return self.callback().make_context(*args, **values)


class _Commands(TyperGroup):
    """All commands: the listed ones, and those of mqadmin under mqadmin's names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command. Raises UsageError."""
        with plain_errors():
            return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None if it is unknown."""
        command = super().get_command(ctx, cmd_name)
        if command is None:
            from namesrv_client.ctl.commands import mqadmin  # noqa: PLC0415  # rarely needed, imports all commands

            if cmd_name in mqadmin.COMMANDS:
                function, spelled = mqadmin.COMMANDS[cmd_name]
                return _built(cmd_name, function, spelled)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name. Raises UsageError."""
        name = args[0]
        # typer proposes similar commands: `delete-topic` for mqadmin's `updateTopic`.
        if _MQADMIN_SPELLING.fullmatch(name) and self.get_command(ctx, name) is None:
            ctx.fail(f"{name} is not among the commands of mqadmin that namesrvctl accepts, use mqadmin itself")
        return super().resolve_command(ctx, args)


def _built(name: str, function: Callable[..., None], spelled: Mapping[str, Any] | None = None) -> Any:
    """The command with all of its options."""
    holder = typer.Typer(**_STYLE)
    command(holder, name, function, spelled=spelled)
    return typer.main.get_command(holder)


def _add(holder: typer.Typer, name: str, target: str, summary: str) -> None:
    holder.command(name, cls=_Later, help=summary)(lambda: _built(name, function_of(target)))


# The commands of mqadmin are in camel case, those of namesrvctl are not.
_MQADMIN_SPELLING: Final = re.compile(r"[a-z]+[A-Z][A-Za-z0-9]*", re.ASCII)
_STYLE: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["--help", "-h"]},
}
app = typer.Typer(cls=_Commands, no_args_is_help=True, **_STYLE)
group(
    app,
    "Inspect and change NameServers, ours and Apache RocketMQ's.\n\n"
    "Exit codes: 0 success; 1 absent, different, unhealthy or refused; 2 usage error, or no server answered.",
)
_groups = {name: typer.Typer(help=text, no_args_is_help=True) for name, text in _GROUPS.items()}
for words, (target, summary) in COMMANDS.items():
    *group_name, name = words.split()
    _add(_groups[group_name[0]] if group_name else app, name, target, summary)
for name, sub_app in _groups.items():
    app.add_typer(sub_app, name=name)
