"""All commands of namesrvctl, by name."""

from collections.abc import Callable, Mapping
from typing import Final

import typer

from namesrv_client.ctl.commands import (
    bench,
    brokers,
    changes,
    completion,
    configuration,
    diff,
    events,
    explain,
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
    """Inspect and change NameServers, ours and Apache RocketMQ's.

    Exit codes: 0 success; 1 absent, different, unhealthy or refused; 2 usage error, or no server answered.
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
    "get": configuration.kv_get,
    "put": configuration.kv_put,
    "delete": configuration.kv_delete,
    "list": configuration.kv_list,
}
_CONFIG: Final[Mapping[str, Callable[..., None]]] = {
    "show": configuration.show_config,
    "set": configuration.set_config,
}


def _add(to: typer.Typer, commands: Mapping[str, Callable[..., None]], *, are_mqadmins: bool = False) -> None:
    for name, function in commands.items():
        command(to, name, is_mqadmins=are_mqadmins)(function)


def _add_group(name: str, text: str, commands: Mapping[str, Callable[..., None]]) -> None:
    sub_app = typer.Typer(help=text, no_args_is_help=True)
    _add(sub_app, commands)
    app.add_typer(sub_app, name=name)


_add(app, _COMMANDS)
_add_group("kv", "Read and change the key-value configuration.", _KV)
_add_group("config", "Read and change settings of running servers.", _CONFIG)
_add(app, mqadmin.COMMANDS, are_mqadmins=True)
