#!/usr/bin/env bash
# Runs the benchmarks, which set up the peers that they compare with.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
case "$*" in
*kafka-latency* | -* | "") . scripts/maven.sh ;; # by name, and where all are asked for
esac
# The peers' Python programs run on the interpreter that ours run on.
PYTHON="$(.venv/bin/python -c 'import sys; print(sys._base_executable)')"
export PYTHON
exec .venv/bin/python -m benchmarks.run "$@"
