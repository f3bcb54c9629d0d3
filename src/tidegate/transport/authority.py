"""The certificate authority of one run of a driver, which nobody has to set up.

Its key stays in the memory of the driver. Certificates hold for all time: they are worth something
as long as the run lasts, clocks of machines differ, and nobody could renew them in a running job.
"""

from __future__ import annotations

import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tidegate.model.keys import Keys

_FROM: Final = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_UNTIL: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
_NAME_MAX: Final = 64


class Authority:
    """Gives each process of a job a key and a certificate of its own."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("tidegate job")
        certificate = self._sign(self._name, self._key.public_key(), is_authority=True)
        self._trusted = certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str) -> Keys:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(name), key.public_key(), is_authority=False)
        own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Keys(own + certificate.public_bytes(Encoding.PEM), self._trusted)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool
    ) -> x509.Certificate:
        own = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_FROM)
            .not_valid_after(_UNTIL)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_NAME_MAX])])
