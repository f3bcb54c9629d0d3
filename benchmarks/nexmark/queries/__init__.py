"""Nexmark's queries by records, written once against PyFlink's names.

PyFlink runs this package as it is; Tidegate runs it after `tidegate.pyflink.install()`. An event is
(event type, person, auction, bid), of which one is there; it and its records are read by position
only, so that they may be rows or tuples. Each query takes the stream of events and its settings,
and gives a stream of tuples, q10 one of texts.
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
