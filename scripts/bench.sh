#!/usr/bin/env bash
# Sets the peers up beside the project and runs the benchmarks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
# The peers' Python programs run on the interpreter that ours run on.
PYTHON="$(.venv/bin/python -c 'import sys; print(sys._base_executable)')"
export PYTHON
bash benchmarks/peers/pyflink/setup.sh >&2
exec .venv/bin/python -m benchmarks.run "$@"
