# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for one API server, and the keys it needs, as files."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair"]

_LIFETIME = timedelta(days=7)
_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs the certificates of one server and its clients; everything lies in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kfp-volcano tests")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        own = own.add_extension(_usage(signs_certificates=True), critical=True)
        self.pair = self._write("ca", self._key, own)

    def server(self, *addresses: str) -> Pair:
        """For a server that is reached under these host names and IP addresses."""
        names = x509.SubjectAlternativeName([_general_name(address) for address in addresses])
        return self._issue("server", x509.Name([]), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, *groups: str) -> Pair:
        """For a user as Kubernetes reads certificates: the common name, and the groups as organizations."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(user.replace(":", "_"), subject, ExtendedKeyUsageOID.CLIENT_AUTH)

    def signing_key(self) -> Path:
        """A key for service account tokens."""
        key = self._folder / "service-accounts.key"
        key.write_bytes(_pem(ec.generate_private_key(ec.SECP256R1())))
        return key

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        use: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key).add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        if names is not None:
            builder = builder.add_extension(names, critical=not subject.rdns)
        return self._write(name, key, builder)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(timezone.utc)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(authority, critical=False)
        )

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, builder: x509.CertificateBuilder) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(_pem(key))
        return pair


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
