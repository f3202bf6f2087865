#!/usr/bin/env bash
# Builds the tests, profiles and examples and copies them into .gpu/, laid out as in the repository, for a machine with a
# GPU but without Bazel: there tools/gpu/run_tests.sh runs them.
#
#   tools/gpu/pack.sh [--archive] [bazel build options]
#
# --archive leaves one compressed .gpu/pack.tar.xz instead of the files: every test carries the kernels, which then count once.
# To build for one GPU alone: tools/gpu/pack.sh --//tools/bazel:cuda_archs=90a
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

archive=
if [[ ${1:-} == --archive ]]; then archive=1; shift; fi

./bazelw build "$@" //tests/... //profiles/... //examples/...

query() { ./bazelw query "$1" --output=label 2>/dev/null | sed 's#^//##; s#:#/#'; }
programs() { query "kind('cc_$1 rule', $2)"; }

rm -rf .gpu
mkdir .gpu
for program in $(programs test //tests/...) $(programs binary '//profiles/... + //examples/...'); do
  install -D "bazel-bin/$program" ".gpu/$program"
  if [[ -d bazel-bin/$program.runfiles/cgr ]]; then cp -RL --remove-destination "bazel-bin/$program.runfiles/cgr/." .gpu; fi
done
query "attr(tags, gpu_short, //tests/...)" > .gpu/gpu_short
for data in examples/*/model; do
  if [[ -d $data ]]; then mkdir -p ".gpu/$data" && cp -RL "$data/." ".gpu/$data"; fi
done

# cJSON is a shared library on some systems, and small.
mkdir .gpu/lib
for program in .gpu/examples/*/*; do
  if [[ -f $program ]]; then
    { ldd "$program" 2>/dev/null || true; } | awk '/libcjson/ && $3 ~ /^\// { print $3 }' | xargs -r cp -L -t .gpu/lib
  fi
done

if [[ $archive ]]; then
  tar -C .gpu -c . | xz -6 -T1 --lzma2=preset=6,dict=256MiB > .gpu.tar.xz
  rm -rf .gpu
  mkdir .gpu
  mv .gpu.tar.xz .gpu/pack.tar.xz
fi
du -sh .gpu
