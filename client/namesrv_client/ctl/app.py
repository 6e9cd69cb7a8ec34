"""All commands of namesrvctl, by name."""

import os
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Annotated, Final, Literal, get_args

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # not declared

from namesrv_client.ctl import PROGRAM
from namesrv_client.ctl.commands import access, audit, bench, brokers, config, diff, explain, following, mqadmin, topics
from namesrv_client.ctl.options import Options, command, group

# What typer does for its options --install-completion and --show-completion, which the command `completion` stands
# for: from then on it answers what the printed scripts ask.
completion_init()

Shell = Literal["bash", "zsh", "fish", "powershell"]
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


group(
    app,
    "Inspect and change NameServers, ours and Apache RocketMQ's.\n\n"
    "Exit codes: 0 success; 1 absent, different, unhealthy or refused; 2 usage error, or no server answered.",
)


def completion(
    options: Options,  # noqa: ARG001 - every command has them
    shell: Annotated[Shell | None, typer.Argument(help="Default: the shell in $SHELL.", show_default=False)] = None,
) -> None:
    """Print the completion script for a shell.

    For bash: namesrvctl completion bash > ~/.local/share/bash-completion/completions/namesrvctl
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in get_args(Shell):
        raise typer.BadParameter(f"unknown shell {name!r} (one of {', '.join(get_args(Shell))})", param_hint="SHELL")
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var="_NAMESRVCTL_COMPLETE", shell=name))


# by name; a name of two words is a command of a group
_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "status": brokers.status,
    "brokers": brokers.brokers,
    "clusters": brokers.clusters,
    "topics": topics.topics,
    "route": topics.route,
    "whoami": access.whoami,
    "connections": brokers.connections,
    "events": following.events,
    "watch": following.watch,
    "audit": audit.audit,
    "explain": explain.explain,
    "diff": diff.diff,
    "bench": bench.bench,
    "wipe-write-perm": brokers.wipe_write_perm,
    "add-write-perm": brokers.add_write_perm,
    "delete-topic": topics.delete_topic,
    "completion": completion,
    "kv get": config.kv_get,
    "kv put": config.kv_put,
    "kv delete": config.kv_delete,
    "kv list": config.kv_list,
    "config show": config.show_config,
    "config set": config.set_config,
    "access check": access.check,
    "access explain": access.explain,
    "access keygen": access.keygen,
}
_GROUPS: Final = {
    "kv": typer.Typer(help="Read and change the key-value config.", no_args_is_help=True),
    "config": typer.Typer(help="Read and change settings of running servers.", no_args_is_help=True),
    "access": typer.Typer(help="Check access files, and make keys for them.", no_args_is_help=True),
}

for words, function in _COMMANDS.items():
    *group_name, name = words.split()
    command(_GROUPS[group_name[0]] if group_name else app, name, function)
for name, sub_app in _GROUPS.items():
    app.add_typer(sub_app, name=name)
for name, (function, spelled) in mqadmin.COMMANDS.items():
    command(app, name, function, spelled=spelled)
