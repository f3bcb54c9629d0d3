#!/usr/bin/env bash
# Writes constraints.txt anew from what .venv holds.
set -euo pipefail
cd "$(dirname "$0")/.."
{
    head -n 1 constraints.txt
    .venv/bin/python -m pip freeze --exclude-editable | sort -f
} > constraints.new
mv constraints.new constraints.txt
