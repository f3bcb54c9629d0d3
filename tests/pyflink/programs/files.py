"""Lines of a file, filtered into others."""

import tempfile
from pathlib import Path

from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)

with tempfile.TemporaryDirectory() as folder:
    source, target = Path(folder, "in.txt"), Path(folder, "out")
    source.write_text("one\ntwo\nthree\nfour\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.from_source(
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(source))
        .process_static_file_set()
        .build(),
        WatermarkStrategy.no_watermarks(),
        "lines",
    )
    lines.map(lambda line: f"{len(line)} {line}", Types.STRING()).filter(
        lambda line: not line.startswith("4")
    ).sink_to(
        FileSink.for_row_format(str(target), Encoder.simple_string_encoder())
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("part").with_part_suffix(".txt").build()
        )
        .with_rolling_policy(RollingPolicy.default_rolling_policy())
        .build()
    )
    env.execute("files")
    parts = [path for path in target.rglob("part*.txt") if path.is_file()]
    print(len(parts), *sorted(line for path in parts for line in path.read_text().splitlines()))
