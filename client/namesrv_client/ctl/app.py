"""Which commands are there?"""

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


for name, function in {
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
}.items():
    command(app, name)(function)

for group_name, text, functions in (
    ("kv", "The key-value configuration.", {"get": kv.get, "put": kv.put, "delete": kv.delete, "list": kv.show_all}),
    ("config", "The settings of the servers.", {"show": config.show_config, "set": config.set_config}),
):
    sub_app = typer.Typer(help=text, no_args_is_help=True)
    for name, function in functions.items():
        command(sub_app, name)(function)
    app.add_typer(sub_app, name=group_name)

for name, function in mqadmin.COMMANDS.items():
    command(app, name, is_mqadmins=True)(function)
