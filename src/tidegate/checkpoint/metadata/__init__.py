from tidegate.checkpoint.metadata.frame import decode, encode, version_of

__all__ = ["decode", "encode", "version_of"]
