#!/usr/bin/env bash
# Runs the demonstration with the arguments that were given.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
exec .venv/bin/python -m examples.demo "$@"
