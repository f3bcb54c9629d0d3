#!/usr/bin/env bash
# Lint, types, all tests, coverage, and the state of the features. Spark's tests share one worker
# (tests/conftest.py). Each part's output stays in build/logs; the last lines name what failed.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/java.sh
. scripts/maven.sh
. scripts/chromium.sh
. scripts/promtool.sh
bin=.venv/bin
logs=build/logs
mkdir -p build/coverage "$logs"
# What an earlier run has left says nothing about this one.
rm -f build/coverage/data* build/test-results.json "$logs"/*.{log,ok}
failed=()
# As in check.sh; and the slots that tests start find their modules prepared.
unset PYTHONDONTWRITEBYTECODE

part() { # part NAME COMMAND...
    local name="$1"
    shift
    "$@" 2>&1 | tee "$logs/$name.log" || failed+=("$name")
}

quiet() { # quiet NAME COMMAND...: shown after the tests
    local name="$1"
    shift
    "$@" >"$logs/$name.log" 2>&1 && touch "$logs/$name.ok"
}

# What never waits takes the time in which tests wait, and is out of their way.
trap "kill 0" INT
{
    renice -n 10 -p "$BASHPID" >/dev/null
    quiet source bash scripts/check.sh source
    # The same runs and inputs each time: a change is refused for what it does, not for a fault that
    # was there before it. New ones are searched by make simulate and make fuzz, FIRST=fresh.
    quiet simulate "$bin/python" -W ignore -m scripts.simulate 400 1000001
    quiet simulate-ends env TIDEGATE_LOOPS=interpreted "$bin/python" -W ignore -m scripts.simulate 200 2000001 calls ends
    # A minute of two processors. Openings of the readers add about as much.
    quiet fuzz "$bin/python" -W ignore -m scripts.fuzz 1 1 ""
} &
# Three at once on two cores: tests of whole jobs wait for more than half of their time.
part tests "$bin/python" -m pytest -q -n 3 --dist loadgroup --timeout 300 \
    --cov --cov-report= --results=build/test-results.json
# The same with loops that are not compiled and functions that are called for each row.
part tests-plain env TIDEGATE_LOOPS=interpreted "$bin/python" -m pytest -q -n 3 \
    --by-row --dist loadgroup --timeout 300 tests/{operators,state,typeinfo,slot,datastream,loops}
quiet coverage "$bin/python" -m coverage report &
part core-coverage "$bin/python" scripts/core_coverage.py
part features "$bin/python" -m scripts.features --brief
wait
for name in source simulate simulate-ends fuzz coverage; do
    cat "$logs/$name.log"
    [ -e "$logs/$name.ok" ] || failed+=("$name")
done
[ "${#failed[@]}" = 0 ] && exit 0
"$bin/python" scripts/failed_parts.py "${failed[@]}"
exit 1
