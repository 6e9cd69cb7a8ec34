"""Access control of a running server: who asks, and whether the access file lets them.

The dispatcher asks the guard about each request. The fast path asks it about connections: over those that are known by
certificate or network it answers requests of the classes that are allowed whatever they name. A server without an
access file has no guard.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol

from namesrv.access.audit_lines import cut
from namesrv.access.reservations import Judgement, Reservations, holders_of, judge
from namesrv.net.dispatcher import Request
from namesrv.net.protocol import ServerConnection
from namesrv.net.steps import in_parts
from namesrv.routeinfo.effects import Effect, Evicted
from namesrv.routeinfo.records import BrokerAddrInfo
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.access import ROCKETMQ_CLASSES, AccessFile, Account, Permission
from namesrv_remoting.addresses import address_of
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import NoPermissionError
from namesrv_remoting.requests import REQUESTS, AccessClass
from namesrv_remoting.signatures import ACCESS_KEY, Recipe, SignatureError, Signer, VerifiedSignature, Verifier
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Digests of larger bodies are computed in a thread: two megabytes take some milliseconds.
_SMALL_BYTES: Final = 256 * 1024
# topics looked at between two looks at the sockets: about a millisecond
_CHUNK: Final = 200
# lines about refusals per second; a hostile peer could fill the disk with them
_LINES_PER_SECOND: Final = 20
_NOTHING: Final[frozenset[AccessClass]] = frozenset()
_ROUTE: Final = RequestCode.GET_ROUTEINFO_BY_TOPIC
_WITH_TOPICS_IN_BODY: Final = frozenset({RequestCode.REGISTER_BROKER, RequestCode.PULL_ROUTES})
# where a request names what rules can be narrowed by, if its code names it at all
_USUAL_FIELDS: Final = {
    "clusters": "clusterName",
    "brokers": "brokerName",
    "topics": "topic",
    "broker_addresses": "brokerAddr",
}
_FIELDS: Final[Mapping[tuple[int, str], str]] = {(RequestCode.GET_TOPICS_BY_CLUSTER, "clusters"): "cluster"}

SignerOf = Callable[[VerifiedSignature], Signer]


class AccessRefusedError(NoPermissionError):
    """Code 16: the access file does not allow it; `reason` is a short word for logs and counters."""

    def __init__(self, remark: str, *, reason: str) -> None:
        super().__init__(remark)
        self.reason = reason


class RefusalListener(Protocol):
    """Told of each refusal, or of what would be one if rules were not merely observed."""

    def __call__(self, request: Request, remark: str, *, reason: str, observed: bool) -> None:
        """A request was refused."""


@dataclass(slots=True, frozen=True)
class ConnectionIdentity:
    """Whom a connection belongs to by its certificate or its address, under one state of the access file."""

    file: AccessFile
    # nobody, if the peer has to sign
    account: Account | None
    # what it may do whatever it names, for as long as this state lasts
    open_classes: frozenset[AccessClass]


class AccessGuard:
    """Decides about requests. `enforces` False: what would be refused is logged and counted, and then let through."""

    def __init__(
        self,
        file: AccessFile,
        *,
        enforces: bool,
        clock: Clock,
        tables: RouteTables,
        on_refused: RefusalListener | None = None,
    ) -> None:
        self.file = file
        self.enforces = enforces
        # how often either has changed
        self.changes = 0
        # refusals by class, reason and outcome (refused, observed), for metrics
        self.refusals: Counter[tuple[str, str, str]] = Counter()
        self._clock = clock
        self._tables = tables
        self._on_refused = on_refused
        # places of brokers that have left; they outlive the file, too
        self.reservations = Reservations()
        # it remembers signatures, so that it outlives the file
        self._verifier = Verifier(self._secrets_of, wall=clock.wall)
        # the second that is being logged in, and lines of it: written, and not
        self._second = 0
        self._lines = 0
        self._unlogged = 0

    def __repr__(self) -> str:
        mode = "enforces" if self.enforces else "observes"
        return f"<AccessGuard [{mode} | {len(self.file.accounts)} accounts | {self.refusals.total()} refused]>"

    def follow(self, file: AccessFile, *, enforces: bool) -> None:
        """Decide by another state of the file from now on, on open connections, too."""
        self.file, self.enforces = file, enforces
        self.changes += 1

    def observe(self, effect: Effect) -> None:
        """Reserve the places of a broker that has left."""
        if isinstance(effect, Evicted):
            self.reservations.broker_left(effect.key, effect.live, self._clock.monotonic())

    async def __call__(self, request: Request) -> Request:
        """The request with its account, if it is allowed; raises NoPermissionError if not."""
        return await self._judge(request, self._verifier.admit)

    async def judge_again(self, request: Request) -> Request:
        """The same for a request that has waited since it was admitted, and whose signature has counted."""
        return await self._judge(request, attrgetter("signer"))

    async def _judge(self, request: Request, signer_of: SignerOf) -> Request:
        try:
            account, recipe = await self._identify(request, signer_of)
            request = replace(request, account=account.name)
            request.connection.peer.account = account.name
            self._check_account(account, request.connection)
            return self._admit(request, account, recipe)
        except (AccessRefusedError, SignatureError) as error:
            request.connection.peer.account = request.account
            self._refused(request, error)
            if self.enforces:
                raise
        return request

    def is_admitted(self, request: Request) -> bool | None:
        """Whether a request will be let in, as far as its header says; None: it is signed, body and all.

        Keys that are not in the file get the same, or it would show which ones are.
        """
        if not self.enforces:
            return True
        if self._access_key_of(request.command) is not None:
            return None
        try:
            account = self._account_of(request.connection)
            self._check_account(account, request.connection)
            self._admit(request, account, None)
        except AccessRefusedError:
            return False
        return True

    def open_classes(self, connection: ServerConnection) -> frozenset[AccessClass]:
        """What may be answered over a connection without a look at the request, unless it is signed."""
        return self._identity_of(connection).open_classes

    async def readable_topics(self, request: Request, topics: Sequence[str]) -> Sequence[str]:
        """Of some topics those whose routes the account of an admitted request may read, or that it may register."""
        account = self.file.accounts.get(request.account)
        if not self.enforces or (account is not None and account.may_anything_in(AccessClass.ROUTE_READ)):
            return topics
        if account is None:
            return ()
        registered = permissions_needed(request.command, names_at_the_places(request.command, self._tables))
        readable: list[str] = []
        async for part in in_parts(topics, _CHUNK):
            for topic in part:
                may_register = all(account.may(each._replace(topic=topic)) for each in registered)
                if may_register or account.may(Permission(_ROUTE, None, None, topic)):
                    readable.append(topic)
        return readable

    # -- who asks -----------------------------------------------------------------------------------------------------

    async def _identify(self, request: Request, signer_of: SignerOf) -> tuple[Account, Recipe | None]:
        """The account, and how its owner has signed; None: not at all."""
        signature = await self._verified(request.command)
        if signature is None:
            return self._account_of(request.connection), None
        signer = signer_of(signature)
        # the file may have changed meanwhile
        account = self.file.by_key.get(signer.access_key)
        if account is None:
            raise AccessRefusedError("the access key is no longer valid", reason="mismatch")
        return account, signer.recipe

    def _account_of(self, connection: ServerConnection) -> Account:
        account = self._identity_of(connection).account
        if account is None:
            remark = "request is not signed, and no account matches this address or certificate"
            raise AccessRefusedError(remark, reason="anonymous")
        return account

    def _check_account(self, account: Account, connection: ServerConnection) -> None:
        """Refuse an account outside its networks or after its end; its owner may read why."""
        if not account.is_admitted_from(address_of(connection.peer.ip)):
            remark = f"account {account.name} may not be used from {connection.peer.ip}"
            raise AccessRefusedError(remark, reason="network")
        if account.is_expired(self._clock.wall()):
            raise AccessRefusedError(f"account {account.name} expired at {account.expires}", reason="expired")

    def _secrets_of(self, access_key: str) -> Sequence[bytes]:
        return self.file.secrets_of(access_key)

    def _access_key_of(self, command: RemotingCommand) -> str | None:
        """The key that a request is signed with; None: it counts as not signed."""
        access_key = (command.ext_fields or {}).get(ACCESS_KEY)
        is_ignored = self.file.ignores_unknown_keys and access_key not in self.file.by_key
        return None if is_ignored else access_key

    async def _verified(self, command: RemotingCommand) -> VerifiedSignature | None:
        if self._access_key_of(command) is None:
            return None
        if len(command.body) > _SMALL_BYTES:
            return await asyncio.to_thread(self._verifier.check, command)
        return self._verifier.check(command)

    def _identity_of(self, connection: ServerConnection) -> ConnectionIdentity:
        known: ConnectionIdentity | None = connection.peer.identity
        if known is not None and known.file is self.file:
            return known
        file, address = self.file, address_of(connection.peer.ip)
        account = file.of_certificate(connection.certificate_names) or file.of_network(address)
        classes = _NOTHING
        if account is not None:
            # noted here since the fast path does not
            connection.peer.account = account.name
            if account.expires is None and account.is_admitted_from(address):
                classes = frozenset(each for each in AccessClass if account.may_anything_in(each))
        identity = ConnectionIdentity(file, account, classes)
        connection.peer.identity = identity
        return identity

    # -- whether they may ---------------------------------------------------------------------------------------------

    def _admit(self, request: Request, account: Account, recipe: Recipe | None) -> Request:
        code = request.command.code
        about = REQUESTS.get(code)
        if about is None:
            remark = f"request {code} belongs to no access class and is always denied"
            raise AccessRefusedError(remark, reason="no_class")
        is_weak = recipe is Recipe.ROCKETMQ and not account.trusts_rocketmq_signatures
        if is_weak and about.access_class not in ROCKETMQ_CLASSES:
            remark = (
                f"a RocketMQ signature is not enough for {about.access_class}: "
                f"sign natively, or set trust_rocketmq_signatures for account {account.name}"
            )
            raise AccessRefusedError(remark, reason="weak_signature")
        if code == RequestCode.REGISTER_BROKER:
            judgement = self._judge_registration(request.command, account)
            request = replace(request, displaces={each.key: each.account for each in judgement.displaced})
            others: list[tuple[str | None, str]] = [
                (each.key.cluster_name, each.broker_name) for each in judgement.respected
            ]
        else:
            others = names_at_the_places(request.command, self._tables)
        if account.may_anything_in(about.access_class):
            return request
        needed = permissions_needed(request.command, others)
        if all(account.may(each) for each in needed):
            return request
        missing = next((each for each in needed if not account.may_for_some_topic(each)), None)
        if missing is None and code in _WITH_TOPICS_IN_BODY:
            return replace(request, check_topics=partial(self._check_topics, request, account, needed))
        raise _not_allowed(account, missing or next(each for each in needed if not account.may(each)))

    def _judge_registration(self, command: RemotingCommand, account: Account) -> Judgement:
        """What a registration means for the brokers whose places it would have; refuses to create a cluster."""
        fields: Mapping[str, Any] = command.ext_fields or {}
        cluster, broker, addr = (fields.get(name) or "" for name in ("clusterName", "brokerName", "brokerAddr"))
        wanted = Permission(command.code, cluster, broker, None, addr)
        if cluster not in self._tables.cluster_addr_table and account.may_for_some_topic(wanted):
            is_elsewhere = any(live.account == account.name for live in self._tables.broker_live_table.values())
            if not account.may_create_cluster(wanted, is_elsewhere=is_elsewhere):
                remark = f"account {account.name} may not create cluster {cut(cluster)}: see create_clusters"
                raise AccessRefusedError(remark, reason="new_cluster")
        key, now = BrokerAddrInfo(cluster, addr), self._clock.monotonic()
        holders = holders_of(self._tables, self.reservations, key, broker, now)
        return judge(wanted, account, self.file.accounts, holders)

    async def _check_topics(
        self, request: Request, account: Account, needed: Iterable[Permission], topics: Iterable[str]
    ) -> None:
        async for part in in_parts(list(topics), _CHUNK):
            for each in (one._replace(topic=topic) for topic in part for one in needed):
                if not account.may(each):
                    error = _not_allowed(account, each)
                    self._refused(request, error)
                    if self.enforces:
                        raise error
                    # the first one says it all
                    return

    def _refused(self, request: Request, error: AccessRefusedError | SignatureError) -> None:
        command, connection, observed = request.command, request.connection, not self.enforces
        about = REQUESTS.get(command.code)
        outcome = "observed" if observed else "refused"
        self.refusals["none" if about is None else about.access_class, error.reason, outcome] += 1
        if self._on_refused is not None:
            self._on_refused(request, error.remark or "", reason=error.reason, observed=observed)
        if (second := int(self._clock.monotonic())) != self._second:
            if self._unlogged:
                event(logger, logging.WARNING, "requests_refused", more=self._unlogged, observed=observed or None)
            self._second, self._lines, self._unlogged = second, 0, 0
        self._lines += 1
        if self._lines > _LINES_PER_SECOND:
            self._unlogged += 1
            return
        event(
            logger,
            logging.WARNING,
            "access_refused",
            request=_name_of(command.code),
            account=request.account or None,
            peer=connection.peer.address,
            proxied=connection.peer.proxied,
            reason=error.reason,
            error=error.remark,
            observed=observed or None,
        )


def _not_allowed(account: Account, missing: Permission) -> AccessRefusedError:
    # names of any length, which end up in logs
    named = [
        f"{name} {cut(value)}" for name, value in missing._asdict().items() if value is not None and name != "code"
    ]
    about = f" for {', '.join(named)}" if named else ""
    remark = f"account {account.name} lacks {REQUESTS[missing.code].access_class}{about} ({_name_of(missing.code)})"
    return AccessRefusedError(remark, reason="not_granted")


def _name_of(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def permissions_needed(command: RemotingCommand, others: Iterable[tuple[str | None, str]]) -> list[Permission]:
    """What a request needs: all of it has to be allowed.

    That is more than it names itself: `others` are clusters and names of brokers whose place it concerns.
    """
    code = command.code
    cluster, broker, topic, address = _named_in(command)
    if code in _WITH_TOPICS_IN_BODY:
        topic = None
    names = [(cluster, broker), *others]
    if (
        broker is not None
        and REQUESTS[code].access_class is AccessClass.ADMIN_WRITE
        and "brokers" in REQUESTS[code].names
    ):
        # it names no cluster, and reaches every one that the broker is in
        names = names[1:] or [(None, broker)]
    return [Permission(code, *pair, topic, address) for pair in dict.fromkeys(names)]


def names_at_the_places(command: RemotingCommand, tables: RouteTables) -> list[tuple[str | None, str]]:
    """Clusters and names of the brokers that a request concerns.

    A broker name is one group whatever its cluster, and an address in a cluster is one broker whatever its name.
    """
    cluster, broker, _, _ = _named_in(command)
    if broker is None:
        return []
    names: list[tuple[str | None, str]] = [
        (home, broker) for home, brokers in tables.cluster_addr_table.items() if broker in brokers
    ]
    fields: Mapping[str, Any] = command.ext_fields or {}
    live = tables.broker_live_table.get(BrokerAddrInfo(cluster or "", fields.get("brokerAddr", "")))
    return names if live is None else [*names, (cluster, live.broker_name)]


def _named_in(command: RemotingCommand) -> list[str | None]:
    """What a request names: cluster, broker, topic, broker address.

    A field that the code's requests do not have may be there all the same, and means nothing.
    """
    fields: Mapping[str, Any] = command.ext_fields or {}
    code, about = command.code, REQUESTS[command.code]
    named = {name: fields.get(_FIELDS.get((code, name), field)) for name, field in _USUAL_FIELDS.items()}
    return [named[name] if name in about.names else None for name in _USUAL_FIELDS]
