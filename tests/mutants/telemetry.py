"""Faults in what is told of a job: the quick tests of telemetry and of the slot find them."""

from tests.mutants.mutant import Mutant

TELEMETRY = [
    Mutant(
        "a reporter gets what it was to leave out",
        "telemetry/names.py",
        "        if _matches(metric, excludes):\n",
        "        if False:\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "a meter tells its count as its rate",
        "telemetry/reporters/prometheus.py",
        "        case Metered(_, rate):\n",
        "        case Metered(rate, _):\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "a counter is a gauge for OpenTelemetry",
        "telemetry/reporters/opentelemetry.py",
        "is_sum=metric.kind is MetricKind.COUNTER)\n",
        "is_sum=False)\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "a metric of a function has the sentence of the engine's",
        "telemetry/catalogue.py",
        "    own = not metric.groups or metric.groups[0][0] in VARIABLES\n",
        "    own = True\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "the end of a job is not reported",
        "telemetry/reporting.py",
        "            self._report(client)\n        self._close()\n",
        "            pass\n        self._close()\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "each failure of a receiver is told",
        "telemetry/reporting.py",
        "        if not self.failed:\n            self._log",
        "        if True:\n            self._log",
        tests="tests/telemetry",
    ),
    Mutant(
        "the busiest of equals has a hot key",
        "telemetry/findings.py",
        "        if busy >= WORKS and most >= SKEWED * max(middle, 1):\n",
        "        if busy >= WORKS:\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "one checkpoint that failed is trouble",
        "telemetry/findings.py",
        "    if len(failed) == FAILED_IN_A_ROW:\n",
        "    if failed:\n",
        tests="tests/telemetry",
    ),
    Mutant(
        "rows to side outputs did not leave a step",
        "slot/subtask/metering.py",
        "        return out.rows + out.beside.rows\n",
        "        return out.rows\n",
        tests="tests/slot",
    ),
    Mutant(
        "bytes that leave are not counted",
        "slot/channels/output.py",
        "            self.bytes_sent += self._consumer.send(each)\n",
        "            self._consumer.send(each)\n",
        tests="tests/slot",
    ),
    Mutant(
        "time held up counts as idle",
        "slot/subtask/metering.py",
        "max(0, _SECOND_MS - _share(busy) - _share(blocked)),\n",
        "max(0, _SECOND_MS - _share(busy)),\n",
        tests="tests/slot",
    ),
    Mutant(
        "event time that is at its end lags",
        "slot/subtask/metering.py",
        "    if watermark_ms is None or watermark_ms in (MIN_TIMESTAMP_MS, MAX_WATERMARK_MS):\n",
        "    if watermark_ms is None:\n",
        tests="tests/slot",
    ),
]
