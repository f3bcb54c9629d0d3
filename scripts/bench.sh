#!/usr/bin/env bash
# Sets the peers up beside the project and runs the benchmarks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
bash benchmarks/peers/pyflink/setup.sh >&2
exec .venv/bin/python -m benchmarks.run "$@"
