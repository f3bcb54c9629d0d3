from tidegate.api.functions import TimeDomain as TimeDomain
from tidegate.api.watermarks import TimestampAssigner as TimestampAssigner
from tidegate.api.watermarks import WatermarkGenerator as WatermarkGenerator
from tidegate.api.watermarks import WatermarkOutput as WatermarkOutput
from tidegate.api.watermarks import WatermarkStrategy as WatermarkStrategy
from tidegate.model.duration import Duration as Duration
from tidegate.model.duration import Instant as Instant
from tidegate.model.duration import Time as Time
