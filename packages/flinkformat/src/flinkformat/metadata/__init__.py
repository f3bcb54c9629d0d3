"""The codec of ``_metadata`` files, Flink's own format; its page is docs/formats/metadata.md."""

from flinkformat.metadata.frame import decode, encode, version_of

__all__ = ["decode", "encode", "version_of"]
