"""Windows of any assigner, trigger and evictor, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.operators.function import FunctionOperator

if TYPE_CHECKING:
    from tidegate.api.evictors import Evictor
    from tidegate.operators.windows import WindowPlan
    from tidegate.typeinfo.types import TypeInformation


class WindowOperator(FunctionOperator):
    """Windows as their assigner and trigger say."""

    def __init__(
        self,
        plan: WindowPlan,
        evictor: Evictor[Any, Any] | None,
        key_type: TypeInformation | None = None,
    ) -> None:
        raise NotImplementedError
