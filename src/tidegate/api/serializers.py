"""PyFlink's ``TypeSerializer``, for programs that have one; Tidegate never calls it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from io import BytesIO

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values of one type to a stream of bytes, and reads them."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Writes a value to the stream."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Reads a value from the stream."""
