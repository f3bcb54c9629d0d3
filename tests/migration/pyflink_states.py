"""A savepoint of PyFlink, with the types of its states."""

from __future__ import annotations

from golden import FIXTURES

PYFLINK = FIXTURES / "pyflink-savepoint-canonical"


FLAGS = [
    "--state=alpha-py-keyed/count=value:LONG",
    "--state=alpha-py-keyed/any=value:PICKLED_BYTE_ARRAY",
    "--state=alpha-py-keyed/words=list:STRING",
    "--state=alpha-py-keyed/seen=map:STRING,INT",
    "--state=alpha-py-keyed/total=reducing:LONG",
    "--state=alpha-py-keyed/avg=aggregating:TUPLE(LONG,LONG)",
    "--state=alpha-py-pickled/c=value:INT",
    "--state=alpha-py-bc/rules=broadcast:STRING,INT",
]
