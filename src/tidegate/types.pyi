from flinkformat.row import Row as Row
from flinkformat.row import RowKind as RowKind
from tidegate.model.elements import ArrowBatch as ArrowBatch
from tidegate.model.elements import RowBatch as RowBatch
from tidegate.typeinfo.types import RowTypeInfo as RowTypeInfo
from tidegate.typeinfo.types import TupleTypeInfo as TupleTypeInfo
from tidegate.typeinfo.types import TypeInformation as TypeInformation
from tidegate.typeinfo.types import Types as Types
