"""All queries by their names.

No other module here imports this one, and the package imports nothing: PyFlink's workers load
functions in several threads at once, which a circle of imports does not survive.
"""

from benchmarks.nexmark.queries.joins import q3, q4, q6, q9, q20
from benchmarks.nexmark.queries.keyed import q15, q16, q17, q18, q19
from benchmarks.nexmark.queries.shared import Query
from benchmarks.nexmark.queries.stateless import q0, q1, q2, q10, q13, q14, q21, q22
from benchmarks.nexmark.queries.windows import q5, q7, q8, q11, q12

QUERIES: dict[str, Query] = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11,
        q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip
