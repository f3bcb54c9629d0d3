"""State of functions and operators: views, descriptors, and how long state lives."""

from tidegate.api.state.column_states import (
    ColumnState,
    ColumnStateDescriptor,
    KeyedColumns,
    KeyedPane,
    KeyedPanes,
)
from tidegate.api.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.api.state.states import (
    AggregatingState,
    AppendingState,
    BroadcastState,
    ListState,
    MapState,
    MergingState,
    OperatorListState,
    ReadOnlyBroadcastState,
    ReducingState,
    State,
    ValueState,
)

__all__ = [
    "AggregatingState",
    "AppendingState",
    "BroadcastState",
    "ColumnState",
    "ColumnStateDescriptor",
    "KeyedColumns",
    "KeyedPane",
    "KeyedPanes",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorListState",
    "OperatorStateDescriptor",
    "ReadOnlyBroadcastState",
    "RedistributionMode",
    "ReducingState",
    "State",
    "StateDescriptor",
    "ValueState",
    "ValueStateDescriptor",
]
