"""Certificates for tests, made on demand in the test's directory."""

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
    """A certificate file and its key file."""

    cert_file: Path
    key_file: Path

    @property
    def server_settings(self) -> dict[str, str]:
        """Server settings that use this certificate."""
        return {"tls_cert_file": str(self.cert_file), "tls_key_file": str(self.key_file)}


class Authority:
    """A certificate authority that writes its certificates into a directory."""

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
        """Issue a certificate for hosts (default: 127.0.0.1 and localhost), replacing existing files atomically."""
        found = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1", "::1")), not_after=expires, common_name=common_name
        )
        issued = Identity(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        key = load_pem_private_key(found.private_key_pem.bytes(), None)
        how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        # PKCS8 is the format that Java reads
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        chain = b"".join(blob.bytes() for blob in found.cert_chain_pems)
        for path, content, mode in ((issued.cert_file, chain, 0o644), (issued.key_file, key_pem, 0o600)):
            new = path.with_suffix(".new")
            new.touch(mode)
            new.write_bytes(content)
            os.replace(new, path)  # noqa: PTH105 - atomic, as certificate renewal tools do
        return issued

    def revocation_list(self, *revoked: Identity, expires: str = "21000101000000Z") -> Path:
        """A certificate revocation list of these certificates, made by openssl."""
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
        """Client settings that trust this authority, with a client certificate if one is given."""
        shown = {} if issued is None else {"tls_cert_file": issued.cert_file, "tls_key_file": issued.key_file}
        return {"tls": True, "tls_ca_file": self.ca_file, **shown, **settings}
