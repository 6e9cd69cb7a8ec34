"""`context`: servers and connection options, saved under a name."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from namesrv_client.ctl.contexts import (
    NAME,
    TLS_SETTINGS,
    Context,
    ContextError,
    Contexts,
    read_contexts,
    write_contexts,
)
from namesrv_client.ctl.options import Options, context_names
from namesrv_client.ctl.output import Report, table
from namesrv_client.ctl.running import print_once

_NAME: Final = typer.Argument(
    metavar="NAME", help="Name of a context.", show_default=False, autocompletion=context_names
)
Name = Annotated[str, _NAME]
OptionalName = Annotated[str | None, _NAME]
_HEADS: Final = ("context", "in use", "servers", "tls", "access key", "secret key file")


def add(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)],
    access_key: Annotated[
        str | None,
        typer.Option("--access-key", metavar="KEY", help="Access key to sign requests with.", show_default=False),
    ] = None,
    secret_key_file: Annotated[
        Path | None,
        typer.Option("--secret-key-file", metavar="FILE", help="File that holds its secret.", show_default=False),
    ] = None,
) -> None:
    """Save servers and connection options under a name, from the options or else the environment.

    Secrets and private keys are not saved, only the names of their files. With --yes an existing context is replaced.
    """
    if NAME.fullmatch(name) is None:
        raise typer.BadParameter(f"{name!r} (letters, digits, '.', '_' and '-', at most 64)", param_hint="NAME")
    signing = options.signing
    if access_key is None and secret_key_file is None and signing.secret_key_file is not None:
        access_key, secret_key_file = signing.access_key, Path(signing.secret_key_file)
    context = Context(
        servers=options.addresses,
        access_key=access_key,
        secret_key_file=secret_key_file,
        **options.tls.model_dump(include=TLS_SETTINGS),
    )
    with _usage_errors():
        known = read_contexts()
        if name in known.by_name and not options.yes:
            raise typer.BadParameter(f"context {name} exists; --yes replaces it", param_hint="NAME")
        contexts = replace(known, by_name={**known.by_name, name: context})
        write_contexts(contexts)
    _show(options, contexts, [name])


def use(options: Options, name: OptionalName = None) -> None:
    """Use a context in commands without --server, --context and NAMESRV_ADDR.

    Without a name, no context is in use any more.
    """
    with _usage_errors():
        contexts = replace(read_contexts(), current=name)
        if name is not None:
            contexts.named(name)
        write_contexts(contexts)
    _show(options, contexts, contexts.by_name if name is None else [name])


def show_contexts(options: Options) -> None:
    """List the saved contexts."""
    with _usage_errors():
        contexts = read_contexts()
    _show(options, contexts, contexts.by_name)


def show_context(options: Options, name: OptionalName = None) -> None:
    """Show a saved context; default: the one in use."""
    with _usage_errors():
        contexts = read_contexts()
        chosen = contexts.current if name is None else name
        if chosen is None:
            raise ContextError("no context is in use")
        members = contexts.named(chosen).members()
    rows = [(key, ", ".join(value) if isinstance(value, list) else value) for key, value in members.items()]
    print_once(options, Report(_document(contexts, chosen), table(("setting", "value"), rows)))


def remove(options: Options, name: Name) -> None:
    """Delete a context. Files that it names are kept."""
    with _usage_errors():
        known = read_contexts()
        known.named(name)
        rest = {key: one for key, one in known.by_name.items() if key != name}
        contexts = Contexts(rest, None if known.current == name else known.current)
        write_contexts(contexts)
    _show(options, contexts, contexts.by_name)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except ContextError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None


def _document(contexts: Contexts, name: str) -> dict[str, Any]:
    return {"name": name, "in_use": name == contexts.current, **contexts.by_name[name].members()}


def _show(options: Options, contexts: Contexts, names: Iterable[str]) -> NoReturn:
    shown = [(name, contexts.by_name[name]) for name in sorted(names)]
    rows = [
        (name, name == contexts.current, " ".join(one.servers), one.tls, one.access_key, one.secret_key_file)
        for name, one in shown
    ]
    document = {"contexts": [_document(contexts, name) for name, _ in shown]}
    print_once(options, Report(document, table(_HEADS, rows), remarks=[] if shown else ["no contexts"]))
