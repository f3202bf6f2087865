#!/usr/bin/env bash
# A Bazel project outside the tree that depends on @cgr//:cgr, built and run in a temporary folder, on the host device alone.
# Bazel 7 and later use MODULE.bazel, earlier versions WORKSPACE, without network. Bazel cannot run Bazel: this is no Bazel test.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
work=$(mktemp -d)
bazel=$(command -v bazel || command -v bazelisk)
trap '"$bazel" --output_user_root="$work/bazel" shutdown >/dev/null 2>&1 || true; chmod -R u+w "$work"; rm -rf "$work"' EXIT

mkdir "$work/consumer"
cp "$root/tests/install/consumer/consumer.c" "$work/consumer"
for file in BUILD MODULE.bazel WORKSPACE; do
  sed "s|@ROOT@|$root|g" "$root/tests/install/bazel_consumer/$file.in" > "$work/consumer/$file"
done
cd "$work/consumer"
"$bazel" --output_user_root="$work/bazel" run --repo_env=CGR_CUDA=0 --repo_env=BAZEL_LINKLIBS=-lm --nosandbox_debug \
  --compilation_mode=opt ${CGR_DISK_CACHE:+--disk_cache="$CGR_DISK_CACHE"} //:consumer
