#!/usr/bin/env bash
# Makes .venv with the package (editable) and the tools, in the pinned versions. Quick when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=".venv/.tidegate-setup"
wanted="$(cat pyproject.toml packages/*/pyproject.toml constraints.txt | cksum) $PWD"

# Jobs run without compiled loops too, more slowly.
compile_loops() {
    .venv/bin/python -m tidegate compile >/dev/null || echo "setup: the loops stay interpreted" >&2
}

if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then compile_loops; exit; fi

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

find_python() {
    # The system's own first: distributions build it with profile-guided optimisation, which a
    # Python built on the spot often lacks, and then Python code runs a third slower.
    local name
    for name in /usr/bin/python3 python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import ensurepip, sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

install_python() {
    echo "setup: installing Python from the system's packages" >&2
    as_root apt-get update -q >&2 && as_root apt-get install -y -q python3 python3-venv >&2
}

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python="$(find_python)" || { install_python && python="$(find_python)"; } || {
        echo "setup: no Python 3.11 or newer was found. Install one and run this again." >&2
        exit 2
    }
    echo "setup: making .venv with $python" >&2
    "$python" -m venv .venv 2>/dev/null || { install_python && "$python" -m venv --clear .venv; } || {
        echo "setup: '$python -m venv' failed. Install the venv module of that Python (python3-venv)." >&2
        exit 2
    }
fi

echo "setup: installing the packages and their tools into .venv" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 \
    --constraint constraints.txt --editable packages/flinkformat --editable '.[dev]'
echo "$wanted" > "$stamp"
compile_loops
