"""Makes the certificates of the secured demonstration: `python certificates.py DIRECTORY`.

The script makes a CA, whose key is not saved, a certificate for the servers and one for each account of access.toml.
Certificates are valid for a year; the script keeps existing certificates that are valid for another week.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# File name without suffix -> the names in the certificate.
_HOLDERS: Final[Mapping[str, Sequence[str]]] = {
    "server": ("namesrv-1", "namesrv-2", "namesrv-3", "localhost", "127.0.0.1"),
    "brokers": ("brokers.demo",),
    "applications": ("applications.demo",),
    "operators": ("operators.demo",),
}
_GOOD_FOR: Final = timedelta(days=365)
_LEFT_ALONE: Final = timedelta(days=7)


def make(directory: Path, now: datetime) -> None:
    """Make all certificates. The CA's certificate is written last, so `is_good` is false after an interruption."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("namesrv demonstration")
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    for file, names in _HOLDERS.items():
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if file == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        issued = (
            _certificate(_name(names[0]), ca_name, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        pkcs8 = serialization.PrivateFormat.PKCS8
        pem = key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())
        _write(directory / f"{file}.key", pem, 0o600)
        _write(directory / f"{file}.pem", issued.public_bytes(serialization.Encoding.PEM), 0o644)
    _write(directory / "ca.pem", ca.public_bytes(serialization.Encoding.PEM), 0o644)


def is_good(directory: Path, now: datetime) -> bool:
    """True if the certificates exist and are valid for another week."""
    try:
        ca = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return ca.not_valid_after_utc - now > _LEFT_ALONE


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _GOOD_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def main(argv: Sequence[str] | None = None) -> None:
    """Make the certificates unless the directory has valid ones."""
    directory = Path((sys.argv[1:] if argv is None else argv)[0])
    now = datetime.now(UTC)
    if not is_good(directory, now):
        make(directory, now)


if __name__ == "__main__":
    main()
