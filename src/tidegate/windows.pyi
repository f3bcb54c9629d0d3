from tidegate.api.functions.window_functions import AllWindowFunction as AllWindowFunction
from tidegate.api.functions.window_functions import (
    ProcessAllWindowFunction as ProcessAllWindowFunction,
)
from tidegate.api.functions.window_functions import ProcessWindowFunction as ProcessWindowFunction
from tidegate.api.functions.window_functions import WindowFunction as WindowFunction
from tidegate.api.windows import CountWindow as CountWindow
from tidegate.api.windows import GlobalWindow as GlobalWindow
from tidegate.api.windows import TimeWindow as TimeWindow
from tidegate.api.windows import Window as Window
from tidegate.api.windows.assigners import AlignedWindows as AlignedWindows
from tidegate.api.windows.assigners import CountSlidingWindowAssigner as CountSlidingWindowAssigner
from tidegate.api.windows.assigners import (
    CountTumblingWindowAssigner as CountTumblingWindowAssigner,
)
from tidegate.api.windows.assigners import (
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
)
from tidegate.api.windows.assigners import (
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
)
from tidegate.api.windows.assigners import EventTimeSessionWindows as EventTimeSessionWindows
from tidegate.api.windows.assigners import GlobalWindows as GlobalWindows
from tidegate.api.windows.assigners import MergingWindowAssigner as MergingWindowAssigner
from tidegate.api.windows.assigners import (
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
)
from tidegate.api.windows.assigners import (
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
)
from tidegate.api.windows.assigners import SlidingEventTimeWindows as SlidingEventTimeWindows
from tidegate.api.windows.assigners import (
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
)
from tidegate.api.windows.assigners import TumblingEventTimeWindows as TumblingEventTimeWindows
from tidegate.api.windows.assigners import (
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from tidegate.api.windows.assigners import WindowAssigner as WindowAssigner
from tidegate.api.windows.evictors import CountEvictor as CountEvictor
from tidegate.api.windows.evictors import DeltaEvictor as DeltaEvictor
from tidegate.api.windows.evictors import Evictor as Evictor
from tidegate.api.windows.evictors import TimeEvictor as TimeEvictor
from tidegate.api.windows.evictors import TimestampedValue as TimestampedValue
from tidegate.api.windows.triggers import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
from tidegate.api.windows.triggers import (
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
)
from tidegate.api.windows.triggers import CountTrigger as CountTrigger
from tidegate.api.windows.triggers import EventTimeTrigger as EventTimeTrigger
from tidegate.api.windows.triggers import NeverTrigger as NeverTrigger
from tidegate.api.windows.triggers import OnMergeContext as OnMergeContext
from tidegate.api.windows.triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
from tidegate.api.windows.triggers import PurgingTrigger as PurgingTrigger
from tidegate.api.windows.triggers import Trigger as Trigger
from tidegate.api.windows.triggers import TriggerContext as TriggerContext
from tidegate.api.windows.triggers import TriggerResult as TriggerResult
