"""Links between driver and slots, and the options that name certificates. Keys as in Flink."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flinkformat.frozen import frozen
from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import BooleanType, EnumType, TextType
from tidegate.errors import ConfigError
from tidegate.model.settings import LinkProtection, LinkSettings, TlsStores

Text = ConfigOption[str | None]


@frozen
class StoreOptions:
    """The options that name one set of certificates. prefix: of their keys."""

    prefix: str
    keystore: Text
    keystore_password: Text
    key_password: Text
    truststore: Text
    truststore_password: Text

    def all(self) -> tuple[Text, ...]:
        return (
            self.keystore,
            self.keystore_password,
            self.key_password,
            self.truststore,
            self.truststore_password,
        )

    def read(self, configuration: ReadableConfig, *, both_ends: bool) -> TlsStores | None:
        """Files named by the options; None without a keystore. Raises ConfigError.

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

    def named(self, configuration: ReadableConfig) -> TlsStores:
        return TlsStores(*(configuration.get(option) for option in self.all()))


def store_options(prefix: str, whose: str, other: str) -> StoreOptions:
    """Options below a prefix. whose: the own end. other: such as "its clients are known"."""

    def option(key: str, text: str) -> Text:
        return ConfigOption(f"{prefix}.{key}", TextType(), None, text)

    return StoreOptions(
        prefix,
        option(
            "keystore",
            f"File with the key and the certificate of {whose}: PEM (both in one file) or PKCS12.",
        ),
        option("keystore-password", "Password of that file."),
        option("key-password", "Password of the key in it, if that has its own."),
        option("truststore", f"File with the certificates by which {other}: PEM or PKCS12."),
        option("truststore-password", "Password of that file."),
    )


INTERNAL: Final = ConfigOption(
    "tidegate.security.internal",
    EnumType(LinkProtection),
    LinkProtection.AUTO,
    "Use TLS 1.3 on links between driver and slots, each end with a certificate that the driver "
    "makes for this run: on, off, or auto, which is on for links that leave the machine. If it is "
    "off for such a link, every frame carries a tag instead, and others can read it.",
)
INTERNAL_TLS: Final = ConfigOption(
    "security.ssl.internal.enabled",
    BooleanType(),
    False,
    "Turns tidegate.security.internal on, with the certificates of security.ssl.internal.keystore "
    "if that is set.",
)
INTERNAL_STORES: Final = store_options(
    "security.ssl.internal", "driver and slots alike", "driver and slots know each other"
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    INTERNAL,
    INTERNAL_TLS,
    *INTERNAL_STORES.all(),
)


def link_settings(configuration: ReadableConfig) -> LinkSettings:
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
