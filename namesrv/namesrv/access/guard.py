"""Access control of a running server: it identifies the sender of a request and applies the access file.

The dispatcher calls the guard for each request. The fast path calls it for each connection: if the peer is identified
by certificate or network, the fast path answers requests of classes that its account may send with any names. A server
without an access file has no guard.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol

from namesrv.access.audit_lines import cut
from namesrv.access.reservations import Judgement, Reservations, judge, occupants_of
from namesrv.net.header_checks import HeaderVerdict
from namesrv.net.peer import ConnectionIdentity
from namesrv.net.request import Connection, Request
from namesrv.routeinfo.tables.effects import Effect, Evicted
from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.yielding import in_chunks
from namesrv_remoting.access import ROCKETMQ_CLASSES, AccessFile, Account, Permission
from namesrv_remoting.addresses import address_of
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import NoPermissionError, SystemBusyError
from namesrv_remoting.requests import REQUESTS, AccessClass, RequestKind
from namesrv_remoting.signatures import ACCESS_KEY, Recipe, SignatureError, Signer, VerifiedSignature, Verifier
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import LimitedEvent
from namesrv_runtime.threads import NoThreadError, in_thread

logger: Final = logging.getLogger(__name__)

# Digests of larger bodies are computed in a thread: two megabytes take some milliseconds.
_SMALL_BYTES: Final = 256 * 1024
# Topics checked between two yields to the event loop: about a millisecond.
_CHUNK: Final = 200
_NOTHING: Final[frozenset[AccessClass]] = frozenset()
_ROUTE: Final = RequestCode.GET_ROUTEINFO_BY_TOPIC
# Rule fields with names, and the ext fields that can have such a name: a header has at most one of them.
_NARROWING: Final = (
    ("clusters", ("clusterName", "cluster")),
    ("brokers", ("brokerName",)),
    ("topics", ("topic",)),
    ("broker_addresses", ("brokerAddr",)),
)


def _narrowing_fields(kind: RequestKind) -> tuple[str | None, ...]:
    """Return the ext fields with cluster, broker, topic and broker address; None for a name that the header lacks."""
    header = () if kind.header is None else kind.header.__struct_encode_fields__
    return tuple(
        next((field for field in fields if name in kind.names and field in header), None) for name, fields in _NARROWING
    )


# request code -> the result of _narrowing_fields
_FIELDS: Final = {code: _narrowing_fields(kind) for code, kind in REQUESTS.items()}
_WITH_TOPICS_IN_BODY: Final = frozenset(
    code for code, kind in REQUESTS.items() if "topics" in kind.names and "topic" not in _FIELDS[code]
)

SignerOf = Callable[[VerifiedSignature], Signer]


class AccessRefusedError(NoPermissionError):
    """The access file does not allow a request (code 16); `reason` is a short word for logs and counters."""

    def __init__(self, remark: str, *, reason: str) -> None:
        super().__init__(remark)
        self.reason = reason


class RefusalListener(Protocol):
    """Receives each refusal, and each request that would be refused if rules were not only observed."""

    def __call__(self, request: Request, remark: str, *, reason: str, observed: bool) -> None:
        """Receive one refusal, with its remark and reason."""


class AccessGuard:
    """Decides about requests; with `enforces` False refusals are only logged and counted."""

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
        # Number of changes of the file or of `enforces`.
        self.changes = 0
        # Refusals by class, reason and outcome (refused, observed), for metrics.
        self.refusals: Counter[tuple[str, str, str]] = Counter()
        self._clock = clock
        self._tables = tables
        self._on_refused = on_refused
        # Reserved places of brokers that have left; the reservations survive a reload of the file.
        self.reservations = Reservations()
        # The verifier remembers signatures, and therefore survives a reload of the file.
        self._verifier = Verifier(self._secrets_of, wall=clock.wall)
        self._log = LimitedEvent(logger, logging.WARNING, "access_refused", rest="requests_refused")

    def __repr__(self) -> str:
        mode = "enforces" if self.enforces else "observes"
        return f"<AccessGuard [{mode} | {len(self.file.accounts)} accounts | {self.refusals.total()} refused]>"

    def follow(self, file: AccessFile, *, enforces: bool) -> None:
        """Apply another state of the access file from now on, also to open connections."""
        self.file, self.enforces = file, enforces
        self.changes += 1

    def observe(self, effect: Effect) -> None:
        """Reserve the places of an evicted broker."""
        if isinstance(effect, Evicted):
            self.reservations.broker_left(effect.key, effect.live, self._clock.monotonic())

    def tick(self) -> None:
        """Log the number of the refusals since the last tick that have no line of their own."""
        self._log.tick(observed=not self.enforces or None)

    async def __call__(self, request: Request) -> Request:
        """Return the request with its account if it is allowed, or if rules are only observed.

        Raises:
            NoPermissionError: the request is not allowed.
            SystemBusyError: no thread can verify its signature.
        """
        return await self._judge(request, self._verifier.admit)

    async def judge_again(self, request: Request) -> Request:
        """Judge an allowed request again that has waited since; its signature counts as verified."""
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

    def judge_header(self, request: Request) -> HeaderVerdict:
        """Judge a request by its header alone; UNDECIDED for a signed request, whose signature covers the body.

        Requests with unknown access keys are UNDECIDED, too: otherwise peers could find out which keys exist.
        """
        if not self.enforces:
            return HeaderVerdict.ALLOWED
        if self._access_key_of(request.command) is not None:
            return HeaderVerdict.UNDECIDED
        try:
            account = self._account_of(request.connection)
            self._check_account(account, request.connection)
            self._admit(request, account, None)
        except AccessRefusedError:
            return HeaderVerdict.REFUSED
        return HeaderVerdict.ALLOWED

    def open_classes(self, connection: Connection) -> frozenset[AccessClass]:
        """Return the access classes of unsigned requests that a connection may send without further checks."""
        return self._identity_of(connection).open_classes

    async def readable_topics(self, request: Request, topics: Sequence[str]) -> Sequence[str]:
        """Return those topics whose routes the account of an admitted request may read or register."""
        account = self.file.accounts.get(request.account)
        if not self.enforces or (account is not None and account.may_anything_in(AccessClass.ROUTE_READ)):
            return topics
        if account is None:
            return ()
        registered = permissions_needed(request.command, names_at_the_places(request.command, self._tables))
        readable: list[str] = []
        async for part in in_chunks(topics, _CHUNK):
            for topic in part:
                may_register = all(account.may(each._replace(topic=topic)) for each in registered)
                if may_register or account.may(Permission(_ROUTE, None, None, topic)):
                    readable.append(topic)
        return readable

    def check_advertised(self, request: Request, addresses: Sequence[str]) -> None:
        """Refuse a registration that advertises an address at which the account could not register the broker.

        Raises AccessRefusedError.
        """
        account = self.file.accounts.get(request.account)
        if account is None or not addresses:
            # Without an account the rules are only observed, and the missing account is noted already.
            return
        (needed,) = permissions_needed(request.command, ())
        wanted = (needed._replace(address=address) for address in addresses)
        refused = next((each for each in wanted if not account.may_for_some_topic(each)), None)
        if refused is not None:
            error = _not_allowed(account, refused)
            self._refused(request, error)
            if self.enforces:
                raise error

    # -- identification -----------------------------------------------------------------------------------------------

    async def _identify(self, request: Request, signer_of: SignerOf) -> tuple[Account, Recipe | None]:
        """Return the account of a request, and the recipe of its signature; None for an unsigned request."""
        signature = await self._verified(request.command)
        if signature is None:
            return self._account_of(request.connection), None
        signer = signer_of(signature)
        # The access file may have changed while the signature was verified.
        account = self.file.by_key.get(signer.access_key)
        if account is None:
            raise AccessRefusedError("the access key is no longer valid", reason="mismatch")
        return account, signer.recipe

    def _account_of(self, connection: Connection) -> Account:
        account = self._identity_of(connection).account
        if account is None:
            remark = "request is not signed, and no account matches this address or certificate"
            raise AccessRefusedError(remark, reason="anonymous")
        return account

    def _check_account(self, account: Account, connection: Connection) -> None:
        """Refuse an expired account, or one used outside its networks; the remark gives its owner the reason."""
        if not account.is_admitted_from(address_of(connection.peer.ip)):
            remark = f"account {account.name} may not be used from {connection.peer.ip}"
            raise AccessRefusedError(remark, reason="network")
        if account.is_expired(self._clock.wall()):
            raise AccessRefusedError(f"account {account.name} expired at {account.expires}", reason="expired")

    def _secrets_of(self, access_key: str) -> Sequence[bytes]:
        return self.file.secrets_of(access_key)

    def _access_key_of(self, command: RemotingCommand) -> str | None:
        """Return the access key of a request; None if the request counts as unsigned."""
        access_key = (command.ext_fields or {}).get(ACCESS_KEY)
        is_ignored = self.file.ignores_unknown_keys and access_key not in self.file.by_key
        return None if is_ignored else access_key

    async def _verified(self, command: RemotingCommand) -> VerifiedSignature | None:
        if self._access_key_of(command) is None:
            return None
        if len(command.body) > _SMALL_BYTES:
            try:
                return await in_thread(self._verifier.check, command)
            except NoThreadError as error:
                raise SystemBusyError(f"no thread to verify a signature: {error}") from error
        return self._verifier.check(command)

    def _identity_of(self, connection: Connection) -> ConnectionIdentity:
        known = connection.peer.identity
        if known is not None and known.file is self.file:
            return known
        file, address = self.file, address_of(connection.peer.ip)
        account = file.of_peer(connection.certificate_names, address)
        classes = _NOTHING
        if account is not None:
            # The account is noted here since the fast path does not note accounts.
            connection.peer.account = account.name
            if account.expires is None and account.is_admitted_from(address):
                classes = frozenset(each for each in AccessClass if account.may_anything_in(each))
        identity = ConnectionIdentity(file, account, classes)
        connection.peer.identity = identity
        return identity

    # -- permissions ---------------------------------------------------------------------------------------------

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
            if self.enforces:
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
        """Judge a registration by the occupants of its places; refuse to create a cluster without permission."""
        fields: Mapping[str, Any] = command.ext_fields or {}
        cluster, broker, addr = (fields.get(name) or "" for name in ("clusterName", "brokerName", "brokerAddr"))
        wanted = Permission(command.code, cluster, broker, None, addr)
        if cluster not in self._tables.cluster_addr_table and account.may_for_some_topic(wanted):
            is_elsewhere = any(live.account == account.name for live in self._tables.broker_live_table.values())
            if not account.may_create_cluster(wanted, is_elsewhere=is_elsewhere):
                remark = f"account {account.name} may not create cluster {cut(cluster)}: see create_clusters"
                raise AccessRefusedError(remark, reason="new_cluster")
        key, now = BrokerAddrInfo(cluster, addr), self._clock.monotonic()
        occupants = occupants_of(self._tables, self.reservations, key, broker, now)
        return judge(wanted, account, self.file.accounts, occupants)

    async def _check_topics(
        self, request: Request, account: Account, needed: Iterable[Permission], topics: Iterable[str]
    ) -> None:
        async for part in in_chunks(list(topics), _CHUNK):
            for each in (one._replace(topic=topic) for topic in part for one in needed):
                if not account.may(each):
                    error = _not_allowed(account, each)
                    self._refused(request, error)
                    if self.enforces:
                        raise error
                    # One refused topic is enough for the log.
                    return

    def _refused(self, request: Request, error: AccessRefusedError | SignatureError) -> None:
        command, connection, observed = request.command, request.connection, not self.enforces
        about = REQUESTS.get(command.code)
        outcome = "observed" if observed else "refused"
        self.refusals["none" if about is None else about.access_class, error.reason, outcome] += 1
        if self._on_refused is not None:
            self._on_refused(request, error.remark or "", reason=error.reason, observed=observed)
        self._log.log(
            request=_name_of(command.code),
            account=request.account or None,
            peer=connection.peer.address,
            proxied=connection.peer.proxied,
            reason=error.reason,
            error=error.remark,
            observed=observed or None,
        )


def _not_allowed(account: Account, missing: Permission) -> AccessRefusedError:
    # Names are cut: they can have any length and end up in logs.
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
    """Return all permissions that a request needs.

    A request needs more than permissions for its own names: `others` are clusters and names of further brokers whose
    places the request affects.
    """
    code = command.code
    cluster, broker, topic, address = _named_in(command)
    names = [(cluster, broker), *others]
    if (
        broker is not None
        and REQUESTS[code].access_class is AccessClass.ADMIN_WRITE
        and "brokers" in REQUESTS[code].names
    ):
        # The request names no cluster and affects the broker's group in every cluster.
        names = names[1:] or [(None, broker)]
    return [Permission(code, *pair, topic, address) for pair in dict.fromkeys(names)]


def names_at_the_places(command: RemotingCommand, tables: RouteTables) -> list[tuple[str | None, str]]:
    """Return clusters and names of the brokers that a request affects.

    A broker name is one group across clusters, and an address in a cluster is one broker under any name.
    """
    cluster, broker, _, _ = _named_in(command)
    if broker is None:
        return []
    names: list[tuple[str | None, str]] = [(home, broker) for home in tables.clusters_of(broker)]
    fields: Mapping[str, Any] = command.ext_fields or {}
    live = tables.broker_live_table.get(BrokerAddrInfo(cluster or "", fields.get("brokerAddr", "")))
    return names if live is None else [*names, (cluster, live.broker_name)]


def _named_in(command: RemotingCommand) -> list[str | None]:
    """Return the cluster, broker, topic and broker address in the header of a request.

    Fields that requests of this code do not have are ignored, even if a peer sends them.
    """
    fields: Mapping[str, Any] = command.ext_fields or {}
    return [None if name is None else fields.get(name) for name in _FIELDS[command.code]]
