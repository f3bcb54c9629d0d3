"""A DataFrame with a column of each type that goes in and comes out."""

from pyspark.sql import DataFrame, SparkSession

EVERYTHING = """
    id,
    cast(id % 2 as boolean) as yes,
    cast(id as byte) as tiny, cast(id as short) as small, cast(id as int) as whole,
    cast(id as float) as single, cast(id as double) / 3 as double,
    cast(id as string) as text, cast(concat('bytes', id) as binary) as bytes,
    cast(id as decimal(5, 2)) as price,
    cast('12345678901234567890123456789.123456789' as decimal(38, 9)) as large,
    date_add(date'0001-01-01', cast(id as int)) as day,
    timestamp'0001-01-01 01:02:03.456789' as long_ago,
    timestamp'9999-12-31 23:59:59.999999' as far_away,
    timestamp_ntz'2024-03-31 02:30:00' as no_zone,
    array(id, null) as numbers,
    named_struct('x', id, 'y', array(named_struct('z', cast(id as string)))) as nested,
    map(concat('k', id), array(id)) as by_name,
    map(named_struct('k', id), timestamp'2024-01-01 00:00:00') as by_struct,
    cast(null as void) as nothing,
    if(id = 3, null, id) as some
"""


def everything(spark: SparkSession, rows: int = 20) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr(*_expressions())


def _expressions() -> list[str]:
    parts, depth, begun = [], 0, 0
    for index, sign in enumerate(EVERYTHING):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(EVERYTHING[begun:index])
            begun = index + 1
    return [*parts, EVERYTHING[begun:]]
