"""Certificates for tests, made as they are needed; nothing of them outlives the test."""

import os
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, each in a file."""

    cert_file: Path
    key_file: Path

    @property
    def server_settings(self) -> dict[str, str]:
        """The settings of a server with it."""
        return {"tls_cert_file": str(self.cert_file), "tls_key_file": str(self.key_file)}


class Authority:
    """An authority with a directory, in which it leaves what it certifies."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._ca = trustme.CA(organization_name=name)
        self.ca_file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.ca_file)

    def issue(
        self,
        name: str,
        *hosts: str,
        expires: datetime | None = None,
        common_name: str | None = None,
        password: str = "",
    ) -> Identity:
        """Certify hosts, 127.0.0.1 and localhost if none are named; files that are there are replaced at once."""
        found = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1", "::1")), not_after=expires, common_name=common_name
        )
        issued = Identity(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        key = load_pem_private_key(found.private_key_pem.bytes(), None)
        how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        # what Java reads, too
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        chain = b"".join(blob.bytes() for blob in found.cert_chain_pems)
        for path, content, mode in ((issued.cert_file, chain, 0o644), (issued.key_file, key_pem, 0o600)):
            new = path.with_suffix(".new")
            new.touch(mode)
            new.write_bytes(content)
            os.replace(new, path)  # noqa: PTH105 - at once, as whoever renews certificates does
        return issued

    def revocation_list(self, *revoked: Identity, expires: str = "21000101000000Z") -> Path:
        """A list of these certificates, made by openssl."""
        key_file, config = self._directory / "crl-ca.key", self._directory / "crl.cnf"
        key_file.touch(0o600)
        key_file.write_bytes(self._ca.private_key_pem.bytes())
        database = self._directory / "revoked.txt"
        database.write_text("")
        config.write_text(f"[ca]\ndefault_ca = it\n[it]\ndatabase = {database}\ndefault_md = sha256\n")
        crl_file = self.ca_file.with_suffix(".crl")
        openssl = ["openssl", "ca", "-config", str(config), "-cert", str(self.ca_file), "-keyfile", str(key_file)]
        begins = ["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", expires]
        for each in revoked:
            subprocess.run([*openssl, "-revoke", str(each.cert_file)], check=True, capture_output=True)
        made = [*openssl, "-gencrl", *begins, "-out", str(crl_file)]
        subprocess.run(made, check=True, capture_output=True)
        return crl_file

    def client(self, issued: Identity | None = None, **settings: Any) -> dict[str, Any]:
        """The settings of a client that trusts this authority, and maybe shows a certificate."""
        shown = {} if issued is None else {"tls_cert_file": issued.cert_file, "tls_key_file": issued.key_file}
        return {"tls": True, "tls_ca_file": self.ca_file, **shown, **settings}
