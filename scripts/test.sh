#!/usr/bin/env bash
# Lint, types, all tests, coverage, and the state of the features. Spark's tests share one worker
# (tests/conftest.py).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
. scripts/maven.sh
bin=.venv/bin
mkdir -p build/coverage
rm -f build/coverage/data*
failed=0
# As in check.sh; and the slots that tests start find their modules prepared.
unset PYTHONDONTWRITEBYTECODE
# What is said of the source takes the time in which tests wait.
bash scripts/check.sh source >build/source.log 2>&1 &
source_check="$!"
# Three at once on two cores: tests of whole jobs wait for more than half of their time.
"$bin/python" -m pytest -q -n 3 --dist loadgroup --timeout 300 \
    --cov --cov-report= --results=build/test-results.json || failed=1
wait "$source_check" || failed=1
cat build/source.log
"$bin/python" -W ignore -m scripts.simulate 600 fresh || failed=1
"$bin/python" -m coverage report || failed=1
"$bin/python" scripts/core_coverage.py || failed=1
"$bin/python" scripts/features.py --brief || failed=1
exit "$failed"
