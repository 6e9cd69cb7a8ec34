"""`access`: checks of an access file, keys for it, and reserved places; `whoami`: this program's account on servers."""

import json
import re
import secrets
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.files import read_file
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, lasting, table
from namesrv_client.ctl.running import Columns, print_once, show_list
from namesrv_remoting.access import (
    GRANTABLE,
    ROCKETMQ_CLASSES,
    Account,
    Permission,
    Rule,
    named_in,
    parse_access_file,
)
from namesrv_remoting.addresses import address_of
from namesrv_remoting.bodies.extensions import Reservation
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.requests import REQUESTS, AccessClass

# HMAC-SHA1 uses no more bits than these; hexadecimal digits need no quotes in files and shells.
_SECRET_BYTES: Final = 24
_KEY_BYTES: Final = 6

File = Annotated[
    Path,
    typer.Option("--file", envvar="NAMESRV_ACCESS", help="Access file, the daemon's --access.", show_default=False),
]


def whoami(options: Options) -> None:
    """Show the account under which each server knows you, and its permissions."""
    show_list(
        options,
        lambda server: server.who_am_i(),
        "identity",
        {
            "account": lambda it: it.account or "anonymous",
            "by": lambda it: it.by,
            "peer": lambda it: it.peer,
            "certificate": lambda it: _joined(it.certificate_names),
            "access": lambda it: it.access,
            "may": lambda it: _joined(it.may),
        },
        lambda identity: [identity],
    )


def check(
    options: Options,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Access file, TOML.", show_default=False)],
) -> None:
    """Check an access file, and list its accounts. Exits with 1 if a server would refuse it."""
    accounts = [_summary(account) for account in read_file(file, parse_access_file).accounts.values()]
    columns = ("account", "access key", "secrets", "certificates", "networks", "expires", "may")
    rows = [[_joined(value) if isinstance(value, list) else value for value in each.values()] for each in accounts]
    print_once(options, Report({"accounts": accounts}, table(columns, rows)))


def explain(  # noqa: PLR0913, PLR0917 - each is an option
    options: Options,
    account: Annotated[
        str, typer.Argument(metavar="ACCOUNT", help="Name of an account in the file.", show_default=False)
    ],
    code: Annotated[str, typer.Argument(metavar="CODE", help="Request code, by name or number.", show_default=False)],
    file: File,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Cluster in the request.")] = None,
    broker: Annotated[str | None, typer.Option("--broker", help="Broker name in the request.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Topic in the request.")] = None,
    broker_addr: Annotated[str | None, typer.Option("--broker-addr", help="Broker address in the request.")] = None,
    address: Annotated[str | None, typer.Option("--from", metavar="ADDRESS", help="Address of the sender.")] = None,
) -> None:
    """Explain whether an account may send a request. Exits with 1 if it may not.

    A running server also checks its tables: the account must be allowed to replace the registered brokers with this
    name or address.
    """
    rules = read_file(file, parse_access_file).accounts.get(account)
    if rules is None:
        raise typer.BadParameter(f"no account {account!r} in {file}", param_hint="ACCOUNT")
    if address is not None and address_of(address) is None:
        raise typer.BadParameter(f"not an IP address: {address!r}", param_hint="--from")
    verdict = judge(rules, Permission(_code(code), cluster, broker, topic, broker_addr), address, now=time.time())
    columns = ("account", "code", "class", "verdict", "why")
    style = "green" if verdict.allowed else "red"
    decision = Text("allowed" if verdict.allowed else "denied", style=style)
    rows = [[verdict.account, verdict.code, verdict.access_class, decision, why] for why in verdict.why]
    print_once(options, Report(asdict(verdict), table(columns, rows), ExitCode.OK if verdict.allowed else ExitCode.NO))


_RESERVED: Final[Columns[Reservation]] = {
    "place": lambda it: it.kind,
    "value": lambda it: it.value,
    "cluster": lambda it: it.cluster,
    "account": lambda it: it.account,
    "expires in": lambda it: lasting(it.expires_in_seconds),
}


def reserved(options: Options) -> None:
    """List broker names and addresses that are reserved for the account that held them last."""
    show_list(options, lambda server: server.reserved(), "reserved places", _RESERVED, lambda places: places)


def keygen(
    options: Options,
    account: Annotated[
        str | None,
        typer.Argument(metavar="ACCOUNT", help="Name of the account; default: a random one.", show_default=False),
    ] = None,
) -> None:
    """Make an access key and secret, and print them as lines for the access file and the environment."""
    name, secret = account or f"key-{secrets.token_hex(_KEY_BYTES)}", secrets.token_hex(_SECRET_BYTES)
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
    lines = [
        "# in the access file of the servers",
        f"[accounts.{key}]",
        f'secrets = ["{secret}"]',
        f'may = ["{GRANTABLE[0]}"]  # or {", ".join(GRANTABLE[1:])}',
        "",
        "# in the environment of agents, clients and namesrvctl",
        f"NAMESRV_ACCESS_KEY={shlex.quote(name)}",
        f"NAMESRV_SECRET_KEY={secret}",
    ]
    print_once(options, Report({"access_key": name, "secret_key": secret}, [Text(line) for line in lines]))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict whether an account may send a request."""

    account: str
    code: str
    access_class: str | None
    allowed: bool
    # A line each: the rule that grants the request and its further conditions, or all objections.
    why: tuple[str, ...]


def judge(account: Account, needed: Permission, address: str | None, *, now: float) -> Verdict:
    """The verdict whether the account may send the request from the address, with the reasons."""
    about = REQUESTS.get(needed.code)
    against = list(_objections(account, needed, address, now))
    why = against or list(_grounds(account, needed))
    name = RequestCode(needed.code).name if needed.code in set(RequestCode) else str(needed.code)
    access_class = None if about is None else about.access_class.value
    return Verdict(account.name, name, access_class, not against, tuple(why))


def _objections(account: Account, needed: Permission, address: str | None, now: float) -> Iterator[str]:
    about = REQUESTS.get(needed.code)
    if about is None:
        yield "this code belongs to no access class and is always denied"
        return
    if account.is_expired(now) and account.expires is not None:
        yield f"the account expired on {_day(account.expires)}"
    if address is not None and not account.is_admitted_from(address_of(address)):
        yield f"{address} is in none of its networks: {', '.join(map(str, account.networks))}"
    if about.access_class is AccessClass.ANY_ACCOUNT or _rule_for(account, needed) is not None:
        return
    rules = [rule for rule in account.rules if rule.access_class is about.access_class]
    if not rules:
        yield f"no rule grants {about.access_class}"
    for rule in rules:
        mismatches = list(rule.mismatches(needed))
        outside = [name for name in mismatches if name not in about.names]
        named = named_in(needed)
        misfit = ", ".join(f"{_singular(name)} {named[name]}" for name in mismatches if named[name] is not None)
        why = f"grants no request that names no {_plain(outside[0])}" if outside else f"does not fit {misfit}"
        yield f"rule '{rule}' {why}"


def _grounds(account: Account, needed: Permission) -> Iterator[str]:
    access_class, rule = REQUESTS[needed.code].access_class, _rule_for(account, needed)
    if rule is None:
        yield "every account may"
    else:
        yield f"rule '{rule}'"
        if unnamed := _unnamed(rule, needed):
            yield f"only for {' and '.join(map(_plain, unnamed))} that fit; name some to ask about them"
    if account.secrets and access_class not in ROCKETMQ_CLASSES and not account.trusts_rocketmq_signatures:
        yield "only if signed natively: a RocketMQ signature is not enough"


def _rule_for(account: Account, needed: Permission) -> Rule | None:
    """A rule that allows the request; where the request leaves a name open, a rule for some names counts."""
    rules = (rule for rule in account.rules if rule.is_about(needed))
    return next((rule for rule in rules if [*rule.mismatches(needed)] == _unnamed(rule, needed)), None)


def _unnamed(rule: Rule, needed: Permission) -> list[str]:
    """Fields to which the rule is restricted, and which the request could name and does not."""
    named = named_in(needed)
    return [name for name in rule.mismatches(needed) if name in REQUESTS[needed.code].names and named[name] is None]


def _plain(name: str) -> str:
    """A field of a rule in words: `broker addresses`."""
    return name.replace("_", " ")


def _singular(name: str) -> str:
    return "broker address" if name == "broker_addresses" else name.removesuffix("s")


def _code(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return RequestCode[text.upper().replace("-", "_")]
    except KeyError:
        raise typer.BadParameter(f"unknown request code {text!r} (for example GET_ROUTEINFO_BY_TOPIC, 105)") from None


def _summary(account: Account) -> dict[str, object]:
    return {
        "account": account.name,
        "access_key": account.access_key,
        "secrets": len(account.secrets),
        "certificates": list(account.certificates),
        "networks": [str(network) for network in account.networks],
        "expires": None if account.expires is None else _day(account.expires),
        "may": [str(rule) for rule in account.rules],
    }


def _joined(values: list[str]) -> str | None:
    return " | ".join(values) or None


def _day(moment: datetime) -> str:
    return moment.isoformat(sep=" ")
