"""Signatures of requests: RocketMQ's (HMAC-SHA1) and the native one (HMAC-SHA256), made and verified.

RocketMQ's, of `AclClientRPCHook`, covers the values of the ext fields and the body: not the code, not the names of the
fields, not the time. It proves who wrote a request once, and may be replayed for ever. The native one covers everything
that a request says, and is good once, within a window of time. Neither hides anything nor covers the answer: that is
what TLS is for.
"""

import base64
import hashlib
import hmac
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import NoPermissionError

# RocketMQ's names (SessionCredentials)
ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
# ours
NATIVE_SIGNATURE: Final = "hmacSha256"
SIGNED_AT: Final = "signedAt"
NONCE: Final = "nonce"

# Java adds them behind the signature (DynamicalExtFieldRPCHook is registered after AclClientRPCHook), and a request
# that is sent again is signed with them.
ZONE_FIELDS: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
# what makes a request a signed one; RocketMQ's can be sent again, with other requests, too
CREDENTIALS: Final = frozenset({ACCESS_KEY, SIGNATURE, "SecurityToken", NATIVE_SIGNATURE, SIGNED_AT, NONCE})

# of one key at a time: the new one, and the old one until everybody has the new one
MAX_SECRETS: Final = 2
MAX_NONCE_CHARACTERS: Final = 64
DEFAULT_WINDOW_SECONDS: Final = 60.0
# of one access key within the window, at about 100 bytes each: a thousand brokers with a heartbeat every second
MAX_REMEMBERED: Final = 128 * 1024

_DOMAIN: Final = b"namesrv request 1"
_SHOWN_CHARACTERS: Final = 64
_MAX_TIME_DIGITS: Final = 15


class Recipe(StrEnum):
    """How a request is signed."""

    ROCKETMQ = "rocketmq"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed a request, and how."""

    access_key: str
    recipe: Recipe


class SignatureError(NoPermissionError):
    """Code 16: the signature is not good; `reason` is a short word for logs and counters.

    An unknown access key and a wrong secret are told apart neither by the remark nor by the time that the answer takes.
    """

    def __init__(self, remark: str, *, reason: str, access_key: str) -> None:
        super().__init__(remark)
        self.reason = reason
        self.access_key = access_key


# -- signing ----------------------------------------------------------------------------------------------------------


def sign_rocketmq(ext_fields: Mapping[str, str] | None, body: bytes, access_key: str, secret: bytes) -> dict[str, str]:
    """The ext fields of a request with those of RocketMQ's signature."""
    fields = {**(ext_fields or {}), ACCESS_KEY: access_key}
    fields[SIGNATURE] = base64.b64encode(_rocketmq_digest(fields, body, secret)).decode()
    return fields


def sign_native(command: RemotingCommand, access_key: str, secret: bytes, *, now_ms: int, nonce: str) -> dict[str, str]:
    """The ext fields of a request with those of the native signature; its opaque must be the one that is sent."""
    fields = {**(command.ext_fields or {}), ACCESS_KEY: access_key, SIGNED_AT: str(now_ms), NONCE: nonce}
    fields[NATIVE_SIGNATURE] = hmac.digest(secret, _canonical(command, fields), "sha256").hex()
    return fields


def _rocketmq_digest(fields: Mapping[str, str], body: bytes, secret: bytes) -> bytes:
    # Java's TreeMap sorts by UTF-16 unit, and its getBytes writes a question mark for half a surrogate pair
    names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    values = "".join(fields[name] for name in names if name != SIGNATURE)
    digest = hmac.new(secret, values.encode(errors="replace"), "sha1")
    digest.update(body)
    return digest.digest()


def _canonical(command: RemotingCommand, fields: Mapping[str, str]) -> bytes:
    """Everything that a request says, each part behind its length, so that no two requests look the same."""
    parts = [
        _DOMAIN,
        *(b"%d" % number for number in (command.code, command.version, command.flag, command.opaque or 0)),
        hashlib.sha256(command.body).digest(),
    ]
    for name in sorted(fields):
        if name != NATIVE_SIGNATURE:
            parts += name.encode(errors="surrogatepass"), fields[name].encode(errors="surrogatepass")
    return b"".join(len(part).to_bytes(4) + part for part in parts)


# -- verifying --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifiedSignature:
    """A request whose signature matches; a native one may still be old, or a copy."""

    signer: Signer
    # of the native signature; 0 and empty otherwise
    signed_at_ms: int = 0
    digest: bytes = b""


class Verifier:
    """Who signed a request. Native signatures are good once, within `window_seconds` of the `wall` clock.

    `secrets_of` has the secrets of an access key, at most two, none for an unknown one; a key without is refused in
    the same time and words as a wrong secret.
    """

    def __init__(
        self,
        secrets_of: Callable[[str], Sequence[bytes]],
        *,
        wall: Callable[[], float],
        window_seconds: float = DEFAULT_WINDOW_SECONDS,
        max_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._secrets_of = secrets_of
        self._wall = wall
        self._window_seconds = window_seconds
        self._max_remembered = max_remembered
        # compared with where there is no secret, so that it takes as long
        self._decoy = secrets.token_bytes(32)
        # access key -> its native signatures of the last while; only keys that have signed something get in
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self._swept_at = 0

    def verify(self, command: RemotingCommand) -> Signer | None:
        """Who signed the request; None when it names no access key. Raises SignatureError, as both halves of it do."""
        signature = self.check(command)
        return None if signature is None else self.admit(signature)

    def check(self, command: RemotingCommand) -> VerifiedSignature | None:
        """The first half of `verify`: arithmetic and no state, so that a thread may do it. Raises SignatureError."""
        fields = command.ext_fields or {}
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            return None
        if NATIVE_SIGNATURE in fields:
            return self._check_native(command, fields, access_key)
        if SIGNATURE in fields:
            return self._check_rocketmq(fields, command.body, access_key)
        raise _malformed(f"field {SIGNATURE} is missing", access_key)

    def admit(self, signature: VerifiedSignature) -> Signer:
        """The second half of `verify`: that it is in time, and the first with this signature. Raises SignatureError."""
        if signature.signer.recipe is Recipe.NATIVE:
            self._admit_once(signature, signature.signer.access_key)
        return signature.signer

    def _check_native(self, command: RemotingCommand, fields: Mapping[str, str], access_key: str) -> VerifiedSignature:
        signed_at, nonce = fields.get(SIGNED_AT, ""), fields.get(NONCE, "")
        if not (signed_at.isascii() and signed_at.isdigit() and len(signed_at) <= _MAX_TIME_DIGITS):
            raise _malformed(f"field {SIGNED_AT}: {signed_at[:_SHOWN_CHARACTERS]!r}: not a time in ms", access_key)
        if not 0 < len(nonce) <= MAX_NONCE_CHARACTERS:
            raise _malformed(f"field {NONCE} of {len(nonce)} characters, limit {MAX_NONCE_CHARACTERS}", access_key)
        canonical = _canonical(command, fields)
        given = fields[NATIVE_SIGNATURE].encode(errors="surrogatepass")
        for secret in self._candidates(access_key):
            digest = hmac.digest(secret, canonical, "sha256")
            if hmac.compare_digest(digest.hex().encode(), given):
                return VerifiedSignature(Signer(access_key, Recipe.NATIVE), int(signed_at), digest[:16])
        raise _mismatch(access_key)

    def _check_rocketmq(self, fields: Mapping[str, str], body: bytes, access_key: str) -> VerifiedSignature:
        readings = [fields]
        if ZONE_FIELDS & fields.keys():
            readings.insert(0, {name: value for name, value in fields.items() if name not in ZONE_FIELDS})
        given = fields[SIGNATURE].encode(errors="surrogatepass")
        for secret in self._candidates(access_key):
            for reading in readings:
                if hmac.compare_digest(base64.b64encode(_rocketmq_digest(reading, body, secret)), given):
                    return VerifiedSignature(Signer(access_key, Recipe.ROCKETMQ))
        raise _mismatch(access_key)

    def _candidates(self, access_key: str) -> list[bytes]:
        """The key's secrets, filled up to as many as any key has."""
        found = [*self._secrets_of(access_key)]
        return found + [self._decoy] * (MAX_SECRETS - len(found))

    def _admit_once(self, signature: VerifiedSignature, access_key: str) -> None:
        now = self._wall()
        age = now - signature.signed_at_ms / 1000
        if abs(age) > self._window_seconds:
            raise _stale(age, self._window_seconds, access_key)
        self._sweep(int(now - self._window_seconds))
        seen, second = self._seen[access_key], signature.signed_at_ms // 1000
        if second <= seen.forgotten:
            raise _stale(age, max(0.0, now - seen.forgotten - 1), access_key)
        if signature.digest in seen.by_second[second]:
            raise SignatureError(
                "this request was received before: each has to be signed anew", reason="replayed", access_key=access_key
            )
        seen.by_second[second].add(signature.digest)
        seen.count += 1
        while seen.count > self._max_remembered:
            seen.forget(min(seen.by_second))

    def _sweep(self, until: int) -> None:
        """Forget what is outside the window, once a second."""
        if until == self._swept_at:
            return
        self._swept_at = until
        for seen in self._seen.values():
            for second in [second for second in seen.by_second if second < until]:
                seen.forget(second)


class _Seen:
    """The native signatures of one access key. What is forgotten is refused from then on: no gap for a copy.

    With too many of them, or with a clock that was set back, the window is narrower instead.
    """

    def __init__(self) -> None:
        # second in which they were signed -> beginnings of the signatures; and how many in all
        self.by_second: defaultdict[int, set[bytes]] = defaultdict(set)
        self.count = 0
        # the last second of which something was forgotten
        self.forgotten = -1

    def forget(self, second: int) -> None:
        """Let go of the signatures of that second."""
        self.count -= len(self.by_second.pop(second))
        self.forgotten = max(self.forgotten, second)


def _malformed(remark: str, access_key: str) -> SignatureError:
    return SignatureError(remark, reason="malformed", access_key=access_key)


def _mismatch(access_key: str) -> SignatureError:
    return SignatureError(
        f"access key {access_key[:_SHOWN_CHARACTERS]!r} is unknown, or the request is not signed with its secret",
        reason="mismatch",
        access_key=access_key,
    )


def _stale(age: float, limit: float, access_key: str) -> SignatureError:
    when = f"{age:.0f} s ago" if age >= 0 else f"{-age:.0f} s in the future"
    return SignatureError(
        f"signed {when} by this server's clock, limit {limit:.0f} s: compare the clocks",
        reason="stale",
        access_key=access_key,
    )
