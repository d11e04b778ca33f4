#!/bin/sh
# Runs the shim with the Python of $PYTHON, or that of this repository's virtual environment.
root=$(cd "$(dirname "$(readlink -f "$0")")/../../../../.." && pwd)
# A checkout has a package of the name "tests" too, and Python looks in the current folder first.
cd "$root" || exit
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-$root/.make-venv/bin/python}" -m tests.interop.qit.dropin "$@"
