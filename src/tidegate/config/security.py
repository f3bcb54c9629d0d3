"""Certificates and passwords: how the doors of a job are locked. Keys as in Flink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import BooleanType, EnumType, TextType
from tidegate.errors import ConfigError
from tidegate.model.settings import LinkProtection, LinkSettings, TlsStores

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration

Text = ConfigOption[str | None]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options that name one set of certificates. prefix: of their keys."""

    prefix: str
    keystore: Text
    keystore_password: Text
    key_password: Text
    truststore: Text
    truststore_password: Text

    def all(self) -> tuple[Text, ...]:
        """Every option."""
        return (
            self.keystore,
            self.keystore_password,
            self.key_password,
            self.truststore,
            self.truststore_password,
        )

    def read(self, configuration: Configuration, *, both_ends: bool) -> TlsStores | None:
        """The files that are named; None where there is no keystore. Raises ConfigError.

        both_ends: whether the other end has to prove itself too.
        """
        named = self.named(configuration)
        if named.keystore is None:
            return None
        if not both_ends:
            return replace(named, truststore=None)
        if named.truststore is None:
            raise ConfigError(
                f"{self.keystore.key} is set, and {self.truststore.key} is not",
                where=configuration.where_set(self.keystore),
                remedy="Name the certificates by which the other end is known.",
            )
        return named

    def named(self, configuration: Configuration) -> TlsStores:
        """The files that are named, whichever they are."""
        return TlsStores(*(configuration.get(option) for option in self.all()))


def store_options(prefix: str, whose: str, other: str) -> StoreOptions:
    """Options below a prefix. whose: the own end. other: by what the other end is known."""

    def option(key: str, text: str) -> Text:
        return ConfigOption(f"{prefix}.{key}", TextType(), None, text)

    return StoreOptions(
        prefix,
        option(
            "keystore",
            f"File with the key and the certificate of {whose}: PEM (both in one file) or PKCS12.",
        ),
        option("keystore-password", "Password of that file."),
        option("key-password", "Password of the key in it, where it has one of its own."),
        option("truststore", f"File with the certificates by which {other}: PEM or PKCS12."),
        option("truststore-password", "Password of that file."),
    )


REST_TLS: Final = ConfigOption(
    "security.ssl.rest.enabled",
    BooleanType(),
    False,
    "Serve the REST interface over TLS, with security.ssl.rest.keystore.",
)
REST_CLIENTS_PROVED: Final = ConfigOption(
    "security.ssl.rest.authentication-enabled",
    BooleanType(),
    False,
    "Answer only those who have a certificate that security.ssl.rest.truststore knows.",
)
REST_STORES: Final = store_options(
    "security.ssl.rest", "the REST interface", "its clients are known"
)
INTERNAL: Final = ConfigOption(
    "tidegate.security.internal",
    EnumType(LinkProtection),
    LinkProtection.AUTO,
    "Whether links between driver and slots speak TLS 1.3, each end with a certificate that the "
    "driver has made for this run: on, off, or auto, which is on where links leave the machine. "
    "Where it is off and they leave it, every frame carries a tag instead, and others can read it.",
)
INTERNAL_TLS: Final = ConfigOption(
    "security.ssl.internal.enabled",
    BooleanType(),
    False,
    "The same as tidegate.security.internal: on, with the certificates of "
    "security.ssl.internal.keystore where that is set.",
)
INTERNAL_STORES: Final = store_options(
    "security.ssl.internal", "driver and slots alike", "driver and slots know each other"
)

SNAPSHOTS_KEY: Final[Text] = ConfigOption(
    "tidegate.security.snapshots.key-file",
    TextType(),
    None,
    "File of the driver with a key of at least 16 characters that signs checkpoints and "
    "savepoints (HMAC-SHA256), and without whose signature none is restored. Only its owner may "
    "read it.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    REST_TLS,
    REST_CLIENTS_PROVED,
    *REST_STORES.all(),
    INTERNAL,
    INTERNAL_TLS,
    *INTERNAL_STORES.all(),
    SNAPSHOTS_KEY,
)


def link_settings(configuration: Configuration) -> LinkSettings:
    """How links within a job are protected. Raises ConfigError for what contradicts itself."""
    protection = configuration.get(INTERNAL)
    stores = INTERNAL_STORES.read(configuration, both_ends=True)
    if configuration.get(INTERNAL_TLS):
        if protection is LinkProtection.OFF:
            raise ConfigError(
                f"{INTERNAL_TLS.key} is true, and {INTERNAL.key} is off",
                where=configuration.where_set(INTERNAL),
                remedy="Leave one of them out.",
            )
        return LinkSettings(LinkProtection.ON, stores)
    if stores is not None:
        raise ConfigError(
            f"{INTERNAL_STORES.keystore.key} is set, and {INTERNAL_TLS.key} is not true",
            where=configuration.where_set(INTERNAL_STORES.keystore),
            remedy=f"Set {INTERNAL_TLS.key}: true.",
        )
    return LinkSettings(protection)


def rest_tls(configuration: Configuration) -> TlsStores | None:
    """Certificates of the REST interface; None where it speaks plain HTTP. Raises ConfigError."""
    if not configuration.get(REST_TLS):
        return None
    proved = configuration.get(REST_CLIENTS_PROVED)
    stores = REST_STORES.read(configuration, both_ends=proved)
    if stores is None:
        raise ConfigError(
            f"{REST_TLS.key} is true, and there is no {REST_STORES.keystore.key}",
            where=configuration.where_set(REST_TLS),
            remedy="Name a PEM or PKCS12 file with a key and its certificate.",
        )
    return stores
