#!/usr/bin/env bash
# Builds and runs the example, and a project that depends on this one, with each Bazel that is named or found, on the host device:
#
#   tests/install/bazel_versions.sh [BAZEL ...]
#
# By default these are `bazel`, and Bazel 7, 8 and 9 where bazelisk and a network can bring them. Bazel cannot run Bazel: this is no
# Bazel test. A version that is not there is named, and is no failure.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
failed=0

# A folder with a program `bazel` that is the given one, for PATH.
wrap() { # name, command
  mkdir -p "$work/$1/bin"
  printf '#!/bin/sh\nexec %s "$@"\n' "$2" > "$work/$1/bin/bazel"
  chmod +x "$work/$1/bin/bazel"
}

try_version() { # name, command
  local name=$1 version
  wrap "$name" "$2"
  if ! version=$(cd "$work" && "$work/$name/bin/bazel" --version 2> "$work/$name/log"); then
    echo "$name: not tested: $(tail -n 1 "$work/$name/log")"
    return
  fi
  if (
    export PATH=$work/$name/bin:$PATH HOME=$work/$name/home
    mkdir -p "$HOME"
    cd "$root" && bazel run --config=nocuda //examples/llama -- --quiet && tests/install/bazel_consumer/run.sh
  ) > "$work/$name/log" 2>&1; then
    echo "$name ($version): the example and a project that depends on cgr build and run"
  else
    failed=1
    echo "$name ($version): failed"
    tail -n 20 "$work/$name/log"
  fi
  (cd "$root" && HOME=$work/$name/home "$work/$name/bin/bazel" shutdown) > /dev/null 2>&1
}

if [[ $# -gt 0 ]]; then
  for bazel; do try_version "$(basename "$bazel")" "$(realpath "$(command -v "$bazel")")"; done
  exit "$failed"
fi
if bazel=$(command -v bazel); then try_version bazel "$bazel"; else echo "bazel: not tested: not on PATH"; fi
for version in 7.x 8.x 9.x; do
  if bazelisk=$(command -v bazelisk); then
    try_version "bazel-$version" "env USE_BAZEL_VERSION=$version $bazelisk"
  else
    echo "bazel-$version: not tested: bazelisk is not on PATH"
  fi
done
exit "$failed"
