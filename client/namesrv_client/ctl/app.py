"""Which commands are there?"""

from collections.abc import Callable, Mapping
from typing import Final

import typer

from namesrv_client.ctl import (
    bench,
    brokers,
    changes,
    completion,
    config,
    diff,
    events,
    explain,
    kv,
    mqadmin,
    status,
    topics,
    watch,
)
from namesrv_client.ctl.options import command, group

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@group(app)
def root() -> None:
    """What NameServers know, and what can be changed in them; ours and Apache RocketMQ's.

    Exit codes: 0 done, or yes; 1 no (absent, different, unhealthy, refused); 2 wrong usage, or no server answered.
    """


_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "status": status.status,
    "brokers": brokers.brokers,
    "clusters": brokers.clusters,
    "topics": topics.topics,
    "route": topics.route,
    "connections": brokers.connections,
    "events": events.events,
    "watch": watch.watch,
    "explain": explain.explain,
    "diff": diff.diff,
    "bench": bench.bench,
    "wipe-write-perm": changes.wipe_write_perm,
    "add-write-perm": changes.add_write_perm,
    "delete-topic": changes.delete_topic,
    "completion": completion.completion,
}
_KV: Final[Mapping[str, Callable[..., None]]] = {
    "get": kv.get,
    "put": kv.put,
    "delete": kv.delete,
    "list": kv.show_all,
}
_CONFIG: Final[Mapping[str, Callable[..., None]]] = {"show": config.show_config, "set": config.set_config}


def _add(to: typer.Typer, commands: Mapping[str, Callable[..., None]], *, are_mqadmins: bool = False) -> None:
    for name, function in commands.items():
        command(to, name, is_mqadmins=are_mqadmins)(function)


def _add_group(name: str, text: str, commands: Mapping[str, Callable[..., None]]) -> None:
    sub_app = typer.Typer(help=text, no_args_is_help=True)
    _add(sub_app, commands)
    app.add_typer(sub_app, name=name)


_add(app, _COMMANDS)
_add_group("kv", "The key-value configuration.", _KV)
_add_group("config", "The settings of the servers.", _CONFIG)
_add(app, mqadmin.COMMANDS, are_mqadmins=True)
