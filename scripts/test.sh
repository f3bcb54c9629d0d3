#!/usr/bin/env bash
# All tests, coverage, and the state of the features. Spark's tests share one worker (tests/conftest.py).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
bin=.venv/bin
mkdir -p build/coverage
rm -f build/coverage/data*
failed=0
"$bin/python" -m pytest -q -n 2 --dist loadgroup --timeout 300 \
    --cov --cov-report= --results=build/test-results.json || failed=1
"$bin/python" -W ignore -m scripts.simulate 600 fresh || failed=1
"$bin/python" -m coverage report || failed=1
"$bin/python" scripts/core_coverage.py || failed=1
"$bin/python" scripts/features.py --brief || failed=1
exit "$failed"
