"""Certificates and keys: read from files, and given to ``ssl``.

``ssl`` reads PEM from files alone. Keys pass through a file that no other user can open;
such a file is in memory where the system has that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError
from tidegate.model.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Generator

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

    from tidegate.model.settings import TlsStores

TLS_NAME: Final = "tidegate"
"""What a dialling end asks for; nobody compares it."""

_PEM: Final = b"-----BEGIN"
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_CERTIFICATE_END: Final = "-----END CERTIFICATE-----"
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


def read_keys(stores: TlsStores, *, prefix: str) -> Keys:
    """Reads the certificates of a configuration. prefix: of option keys, like `security.ssl.rest`.

    Raises ConfigError for a file that is missing, is none, or does not open with its password.
    """
    own = trusted = b""
    if stores.keystore is not None:
        store = _Store(stores.keystore, stores.keystore_password, f"{prefix}.keystore")
        own = store.key_and_chain(stores.key_password)
    if stores.truststore is not None:
        given = stores.truststore_password
        trusted = _Store(stores.truststore, given, f"{prefix}.truststore").certificates()
    return Keys(own, trusted)


def server_context(keys: Keys, *, oldest: ssl.TLSVersion) -> ssl.SSLContext:
    """TLS context of a port. Peers must prove themselves if the keys say whom to trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, keys, oldest)
    if keys.trusted:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def link_contexts(keys: Keys) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS 1.3 contexts for links within a job, listening and dialling; both ends are proved."""
    serving = server_context(keys, oldest=ssl.TLSVersion.TLSv1_3)
    serving.num_tickets = 0  # no link is resumed
    return serving, dialling_context(keys)


def dialling_context(keys: Keys) -> ssl.SSLContext:
    """TLS context for dialling within a job. Any certificate that the keys trust is accepted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Slots have no lasting names to check; a certificate of the job itself is proof enough.
    context.check_hostname = False
    _load(context, keys, ssl.TLSVersion.TLSv1_3)
    return context


def service_context(keys: Keys, *, check_names: bool) -> ssl.SSLContext:
    """TLS context for dialling a service outside of the job.

    The service is known by what the keys trust, else by what this machine trusts. check_names:
    whether its certificate has to be that of the host that was dialled.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_names
    if not keys.trusted:
        context.load_default_certs()
    _load(context, keys, ssl.TLSVersion.TLSv1_2)
    return context


def fingerprint(certificate: bytes | None) -> bytes:
    """Hash that represents a certificate (DER) in a proof."""
    assert certificate is not None, "both ends of a link within a job have one"
    return hashlib.sha256(certificate).digest()


def own_fingerprint(keys: Keys) -> bytes:
    """The `fingerprint` of the certificate that these keys present."""
    pem = keys.own[keys.own.index(_CERTIFICATE) :].decode("ascii")
    first, end, _ = pem.partition(_CERTIFICATE_END)
    return fingerprint(ssl.PEM_cert_to_DER_cert(first + end))


def _load(context: ssl.SSLContext, keys: Keys, oldest: ssl.TLSVersion) -> None:
    context.minimum_version = oldest
    if keys.own:
        with _as_file(keys.own) as path:
            context.load_cert_chain(path)
    if keys.trusted:
        context.load_verify_locations(cadata=keys.trusted.decode("ascii"))


@contextlib.contextmanager
def _as_file(data: bytes) -> Generator[str]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tidegate-keys", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="tidegate-keys-") as file:  # with mode 0600
        file.write(data)
        file.flush()
        yield file.name


class _Store:
    """A file with certificates, PEM or PKCS12. where: the option that names it."""

    def __init__(self, path: str, password: str | None, where: str) -> None:
        self._path = path
        self._password = None if password is None else password.encode()
        self._where = where
        try:
            self._data = Path(path).read_bytes()
        except OSError as error:
            raise self._unfit(f"cannot be read: {error}", "Name a PEM or PKCS12 file.") from error
        if self._data.startswith(_JKS):
            raise self._unfit(
                "is a JKS store, which only Java reads",
                f"Convert it: keytool -importkeystore -srckeystore {path} "
                f"-destkeystore {Path(path).with_suffix('.p12')} -deststoretype PKCS12",
            )

    def key_and_chain(self, key_password: str | None) -> bytes:
        """The private key, without a password, and its chain of certificates."""
        from cryptography.hazmat.primitives import serialization

        key, certificates = self._parts(key_password)
        if key is None or not certificates:
            raise self._unfit(
                "holds no private key, or no certificate",
                "A PEM file needs both the key and the certificate chain, one after the other.",
            )
        own = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return own + _pem(certificates)

    def certificates(self) -> bytes:
        _, certificates = self._parts(None)
        if not certificates:
            raise self._unfit("holds no certificate", "Put those in that are to be trusted.")
        return _pem(certificates)

    def _parts(self, key_password: str | None) -> tuple[PrivateKeyTypes | None, list[Certificate]]:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

        password = self._password if key_password is None else key_password.encode()
        try:
            if _PEM not in self._data:
                store = pkcs12.load_pkcs12(self._data, self._password)
                first = [] if store.cert is None else [store.cert]
                found = [each.certificate for each in (*first, *store.additional_certs)]
                return store.key, found
            key = None
            if b"PRIVATE KEY-----" in self._data:
                encrypted = b"ENCRYPTED" in self._data
                key = load_pem_private_key(self._data, password if encrypted else None)
            found = x509.load_pem_x509_certificates(self._data)
            return key, found
        except (ValueError, TypeError) as error:
            raise self._unfit(
                f"cannot be opened: {error}",
                f"Look at the file and its password ({self._where}-password).",
            ) from error

    def _unfit(self, why: str, remedy: str) -> ConfigError:
        return ConfigError(f"{self._path} {why}", where=self._where, remedy=remedy)


def _pem(certificates: list[Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
