#!/usr/bin/env python3
"""Queries of Nexmark on Flink in Java: their SQL text, q6 as a DataStream job.

--query q0, or q0,q5 for one after another in one JVM (not with --verify).
"""
import json
import os
import subprocess
import sys
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "common"))
sys.path.insert(0, os.path.join(HERE, "..", "..", ".."))
import peerlib  # noqa: E402
from run import OPENS, flink_home  # noqa: E402

BASE_MS = 1_436_918_400_000


def verified(a, out):
    """Compares with plain Python what stands after all changes."""
    from decimal import Decimal

    from benchmarks.nexmark import plain
    from benchmarks.nexmark.generator import Generator

    final = Counter()
    rows = []
    with open(os.path.join(out, "results.jsonl")) as lines:
        for line in lines:
            kind, *fields = json.loads(line)
            if a.query == "q10":
                fields = [",".join(map(str, fields))]
            if a.query in ("q1", "q14"):
                fields[2] = Decimal(fields[2])
            if a.query == "q6":
                rows.append(tuple(fields))
            else:
                final[tuple(fields)] += 1 if kind in ("+I", "+U") else -1
    if a.query != "q6":
        rows = (+final).elements()
        if -final:
            return ["withdrawn, but never given: " + str(next(iter(-final)))]
    events = Generator(rate=a.rate, base_ms=BASE_MS).events(0, a.records)
    return plain.differences(a.query, list(rows), events, 10_000, sql=True)


def main():
    ap = peerlib.parser(["nexmark"], workload="nexmark", records=1_000_000)
    ap.add_argument("--query", required=True)
    ap.add_argument("--heap", default="3g")
    a = ap.parse_args()
    a.rate = int(a.rate)
    out = peerlib.fresh_dir(a.out)
    logging = os.path.join(out, "log4j.properties")
    with open(logging, "w") as f:
        f.write("rootLogger.level=WARN\nrootLogger.appenderRef.f.ref=F\nappender.f.name=F\nappender.f.type=FILE\n"
                f"appender.f.fileName={out}/flink.log\nappender.f.layout.type=PatternLayout\n"
                "appender.f.layout.pattern=%d %-5p %c - %m%n\n")
    os.makedirs(os.path.join(out, "tmp"), exist_ok=True)
    cmd = ["java", f"-Xmx{a.heap}", f"-Xms{a.heap}", f"-Dlog4j.configurationFile={logging}"]
    for o in OPENS:
        cmd += ["--add-opens", o]
    cmd += ["-cp", os.environ.get("NEXMARK_CLASSES", "") + os.pathsep + os.path.join(flink_home(), "lib", "*"),
            "tidegate.peer.NexmarkBench", "--query", a.query, "--parallelism", str(a.parallelism),
            "--records", str(a.records), "--rate", str(a.rate), "--base-ms", str(BASE_MS),
            "--checkpoint-ms", str(a.checkpoint_ms), "--out", out, "--sql", os.path.join(HERE, "sql"),
            "--verify", str(a.verify).lower(), "--warmup-frac", str(a.warmup_frac)]
    run = subprocess.run(cmd, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.stdout.write(run.stdout)
        sys.exit(f"flink failed with {run.returncode}; see {out}/flink.log")
    if a.verify:
        wrong = verified(a, out)
        for line in wrong:
            print("WRONG:", line, file=sys.stderr)
        peerlib.emit(system="flink-sql", query=a.query, verified=not wrong)
        return
    for line in run.stdout.splitlines():
        if line.startswith('{"system"'):
            peerlib.emit(**json.loads(line))


if __name__ == "__main__":
    main()
