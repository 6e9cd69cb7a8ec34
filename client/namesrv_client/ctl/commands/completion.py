"""`completion`: the scripts with which a shell completes commands, options and names."""

import os
from pathlib import PurePath
from typing import Annotated, Literal, get_args

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not declared

from namesrv_client.ctl import PROGRAM
from namesrv_client.ctl.options import Options

Shell = Literal["bash", "zsh", "fish", "powershell"]


def completion(
    options: Options,  # noqa: ARG001 - every command takes the options
    shell: Annotated[
        Shell | None, typer.Argument(metavar="SHELL", help="Default: the shell in $SHELL.", show_default=False)
    ] = None,
) -> None:
    """Print the completion script for a shell.

    For bash: namesrvctl completion bash > ~/.local/share/bash-completion/completions/namesrvctl
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in get_args(Shell):
        raise typer.BadParameter(f"unknown shell {name!r} (one of {', '.join(get_args(Shell))})", param_hint="SHELL")
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var="_NAMESRVCTL_COMPLETE", shell=name))
