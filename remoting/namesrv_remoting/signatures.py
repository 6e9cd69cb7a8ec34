"""Signing and verifying of requests: RocketMQ's signature (HMAC-SHA1) and the native one (HMAC-SHA256).

RocketMQ's signature (`AclClientRPCHook`) covers the values of the ext fields and the body, but not the code, the names
of the fields, or the time: it proves who once wrote the request, and can be replayed for ever. The native signature
covers the whole request, and is accepted once, within a window of time. Neither signature encrypts a request or covers
the response; TLS does both.
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

# the ext fields of RocketMQ's signature (SessionCredentials)
ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
# the ext fields of the native signature
NATIVE_SIGNATURE: Final = "hmacSha256"
SIGNED_AT: Final = "signedAt"
NONCE: Final = "nonce"

# Java adds these fields after signing (DynamicalExtFieldRPCHook is registered after AclClientRPCHook), but a request
# that is sent again is signed with them.
ZONE_FIELDS: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
# all fields that belong to a signature
CREDENTIALS: Final = frozenset({ACCESS_KEY, SIGNATURE, "SecurityToken", NATIVE_SIGNATURE, SIGNED_AT, NONCE})

# Secrets of one access key: the new one, and the old one until all peers use the new one.
MAX_SECRETS: Final = 2
MAX_NONCE_CHARACTERS: Final = 64
DEFAULT_WINDOW_SECONDS: Final = 60.0
# Remembered signatures of one access key, at about 100 bytes each: enough for a thousand brokers with a heartbeat every
# second within the window.
MAX_REMEMBERED: Final = 128 * 1024

_DOMAIN: Final = b"namesrv request 1"
_SHOWN_CHARACTERS: Final = 64
_MAX_TIME_DIGITS: Final = 15


class Recipe(StrEnum):
    """The kinds of signatures."""

    ROCKETMQ = "rocketmq"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Signer:
    """The access key and the kind of a signature."""

    access_key: str
    recipe: Recipe


class SignatureError(NoPermissionError):
    """Code 16: the signature is not accepted; `reason` is a short word for logs and counters.

    An unknown access key and a wrong secret give the same remark after the same time.
    """

    def __init__(self, remark: str, *, reason: str, access_key: str) -> None:
        super().__init__(remark)
        self.reason = reason
        self.access_key = access_key


# -- signing ----------------------------------------------------------------------------------------------------------


def sign_rocketmq(ext_fields: Mapping[str, str] | None, body: bytes, access_key: str, secret: bytes) -> dict[str, str]:
    """The ext fields of a request, with RocketMQ's signature added."""
    fields = {**(ext_fields or {}), ACCESS_KEY: access_key}
    fields[SIGNATURE] = base64.b64encode(_rocketmq_digest(fields, body, secret)).decode()
    return fields


def sign_native(command: RemotingCommand, access_key: str, secret: bytes, *, now_ms: int, nonce: str) -> dict[str, str]:
    """The ext fields of a request, with the native signature added; the opaque must be the final one."""
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
    """All parts of a request, each after its length, so that no two different requests have the same bytes."""
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
    """A signature that matches its request; a native one may still be too old, or replayed."""

    signer: Signer
    # time and digest of a native signature; otherwise 0 and empty
    signed_at_ms: int = 0
    digest: bytes = b""


class Verifier:
    """Verifies signatures. Native signatures are accepted once, within `window_seconds` of the `wall` clock.

    `secrets_of` returns the secrets of an access key, at most two, and no secret for an unknown key; such a key is
    refused in the same time and words as a wrong secret.
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
        # a random secret that stands in for missing secrets, so that every check takes the same time
        self._decoy = secrets.token_bytes(32)
        # access key -> its recent native signatures; only keys with a valid signature have an entry
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self._swept_at = 0

    def verify(self, command: RemotingCommand) -> Signer | None:
        """The signer of a request; None for a request without an access key. Raises SignatureError."""
        signature = self.check(command)
        return None if signature is None else self.admit(signature)

    def check(self, command: RemotingCommand) -> VerifiedSignature | None:
        """The first half of `verify`, which uses no state, so that a thread may do it. Raises SignatureError."""
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
        """The second half of `verify`: check the time of the signature, and refuse a replay. Raises SignatureError."""
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
        """The secrets of a key, filled up with decoys to the same number for every key."""
        secrets = [*self._secrets_of(access_key)]
        return secrets + [self._decoy] * (MAX_SECRETS - len(secrets))

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
        """Forget signatures outside the window, once a second."""
        if until == self._swept_at:
            return
        self._swept_at = until
        for seen in self._seen.values():
            for second in [second for second in seen.by_second if second < until]:
                seen.forget(second)


class _Seen:
    """The recent native signatures of one access key.

    Signatures of a forgotten second are refused, so that no replay is possible: with too many signatures, or after the
    clock was set back, the window is narrower.
    """

    def __init__(self) -> None:
        # second of signing -> beginnings of its signatures; and the number of signatures in all seconds
        self.by_second: defaultdict[int, set[bytes]] = defaultdict(set)
        self.count = 0
        # the latest forgotten second
        self.forgotten = -1

    def forget(self, second: int) -> None:
        """Forget the signatures of one second."""
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
