"""Access control of one server."""

import math
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from namesrv.access.audit import AuditLog
from namesrv.access.guard import AccessGuard
from namesrv.access.quotas import RequestLimiter
from namesrv.net.dispatcher import Handler
from namesrv.net.header_checks import HeaderVerdict
from namesrv.net.request import Request


@dataclass(slots=True)
class AccessControl:
    """The access rules, the request quotas, and the record of changes and refusals."""

    # None without an access file: all peers may send all requests.
    guard: AccessGuard | None
    limiter: RequestLimiter
    # None without an audit trail.
    audit: AuditLog | None

    @property
    def enforces(self) -> bool:
        """True if requests without permission are refused."""
        return self.guard is not None and self.guard.enforces

    @property
    def mode(self) -> str:
        """The access mode: `open` without an access file, else `enforce` or `observe`."""
        return "open" if self.guard is None else "enforce" if self.guard.enforces else "observe"

    def tick(self) -> None:
        """Log what has been counted since the last tick, about a second ago."""
        if self.guard is not None:
            self.guard.tick()
        if self.audit is not None:
            self.audit.tick()

    def admit(self, request: Request) -> Awaitable[Request]:
        """Admit a request under the access rules and quotas: see `RequestLimiter.admit`."""
        return self.limiter.admit(request, self.guard)

    def judge_header(self, request: Request) -> HeaderVerdict:
        """Judge a request by its header alone."""
        return HeaderVerdict.ALLOWED if self.guard is None else self.guard.judge_header(request)

    def permission_version(self, request: Request) -> tuple[int, bool]:
        """Return a value that changes when the access file changes or the account of the request expires."""
        return (0 if self.guard is None else self.guard.changes), self.account_seconds_left(request) <= 0

    def account_seconds_left(self, request: Request) -> float:
        """Return the seconds until the request's account expires; infinite without enforced rules or an end date."""
        guard = self.guard
        account = None if guard is None or not guard.enforces else guard.file.accounts.get(request.account)
        if account is None or account.expires is None:
            return math.inf
        return max(0.0, account.expires.timestamp() - self.limiter.clock.wall())

    def audited(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """Wrap handlers by request code, so that changes and refusals get a line in the audit trail."""
        if self.audit is None:
            return handlers
        return {code: self.audit.watching(handler) for code, handler in handlers.items()}
