"""Registration of commands: each with the common options before and after it, and a help of its own options.

typer has options of a single command only; `command` and `group` add the common ones to each, so that
`namesrvctl -s ns1:9876 brokers` and `namesrvctl brokers -s ns1:9876` are the same.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from namesrv_client.ctl import PROGRAM
from namesrv_client.ctl.options import PANEL, Options, options_of
from namesrv_runtime.program import version

_ALSO: Final = (
    "Every command also takes --server, --context, --output, --watch, --timeout, --no-color, --yes and --tls...: "
    f"see {PROGRAM} --help."
)
_COMMON: Final = inspect.signature(options_of).parameters


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001 - typer calls the callback with a positional argument
    if is_wanted:
        typer.echo(f"{PROGRAM} {version()}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]
_MqadminServer = Annotated[
    list[str] | None,
    typer.Option(
        *("--namesrvAddr", "-n", "--server"),
        metavar="HOST[:PORT];...",
        show_default=False,
        help="NameServers, as for mqadmin.",
    ),
]


def group(app: typer.Typer, text: str) -> None:
    """Register the help text of `app` itself, with the common options before the command."""

    def callback(ctx: typer.Context, *, version: bool, **common: Any) -> None:  # noqa: ARG001 - its callback prints it
        ctx.obj = common

    own = inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, annotation=_Version, default=False)
    app.callback()(_with_signature(callback, text, [own, *_COMMON.values()]))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Drop the prefix that typer 0.29 leaves on messages of pydantic: "Value error, 'xml' is not one of ..."."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


class _Command(TyperCommand):
    """A command whose help lists its own options, and names the common ones in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options and arguments. Raises UsageError."""
        with plain_errors():
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        common = [option for option in self.params if getattr(option, "rich_help_panel", None) == PANEL]
        for option in common:
            option.hidden = True  # type: ignore[attr-defined]  # options have the attribute, arguments do not
        super().format_help(ctx, formatter)
        for option in common:
            option.hidden = False  # type: ignore[attr-defined]  # as above


def command(
    app: typer.Typer, name: str, function: Callable[..., None], *, spelled: Mapping[str, Any] | None = None
) -> None:
    """Register a command whose first parameter is the `Options`.

    A command of mqadmin has `spelled`, mqadmin's options by parameter; it is hidden, and takes -n instead of -s.
    """
    _, *own = inspect.signature(function).parameters.values()
    common, also = dict(_COMMON), _ALSO
    if spelled is not None:
        own = [parameter.replace(annotation=spelled[parameter.name]) for parameter in own if parameter.name in spelled]
        common["server"] = common["server"].replace(annotation=_MqadminServer)
        also = also.replace("--server, ", "")

    def run(ctx: typer.Context, **values: Any) -> None:
        _check_text(values)
        after = {key: values.pop(key) for key in common}
        function(_merged(ctx.obj, after), **values)

    app.command(name, cls=_Command, hidden=spelled is not None, epilog=also)(
        _with_signature(run, function.__doc__ or "", [*own, *common.values()])
    )


def options_on_line(ctx: typer.Context) -> Options:
    """The options of an unfinished command line, for completion. Raises BadParameter."""
    return _merged(ctx.find_root().params, {key: ctx.params.get(key) for key in _COMMON})


def _merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> Options:
    """The options before and after the command: servers add up; otherwise the option after the command counts."""
    merged = {key: value or before[key] for key, value in after.items()}
    merged["server"] = [*(before["server"] or ()), *(after["server"] or ())]
    return options_of(**merged)


def _check_text(values: Mapping[str, Any]) -> None:
    """Refuse arguments that cannot be sent to a server: invalid UTF-8, empty names. Raises BadParameter."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise typer.BadParameter(f"{text!a} is not valid UTF-8", param_hint=name.upper())
            noun = name.removesuffix("s")
            # A server deletes a topic from all clusters if the name of the cluster is empty.
            if text == "" and noun in {"topic", "cluster", "broker"}:
                raise typer.BadParameter(f"the name of a {noun} is empty", param_hint=noun.upper())


def _with_signature(
    function: Callable[..., None], text: str, parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """The function with a docstring and a signature for typer."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    taken = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    taken += [parameter.replace(kind=keyword) for parameter in parameters]
    # typer keeps the line breaks of all paragraphs but the first, so each paragraph becomes one line.
    function.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    function.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]  # inspect reads this attribute
    return function
