#!/usr/bin/env bash
# Measures which lines of the library's host code the tests run on this machine: a line per folder, then all of it.
#
#   tools/coverage.sh [--lines] [test targets]      e.g.  tools/coverage.sh --lines //tests/graphs/...
#
# --lines also lists the lines that no test has run. Needs gcov, which comes with gcc, and python3. Every run starts afresh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lines=
if [[ ${1:-} == --lines ]]; then lines=--lines; shift; fi
targets=("${@:-//tests/...}")

# Bazel compiles in /proc/self/cwd, so the counters would go to each test's own folder: this brings them to their notes.
root=$(./bazelw info --config=coverage_counters execution_root 2>/dev/null)
objects=$root/bazel-out/k8-optcoverage
find "$objects" -name '*.gcda' -delete 2>/dev/null || true
status=0 # a test that fails has run lines, too
./bazelw test --config=coverage_counters --test_env=GCOV_PREFIX="$root" --test_env=GCOV_PREFIX_STRIP=3 "${targets[@]}" >&2 || status=$?
for folder in base buffers devices graphs interop kernels planners requests runtime tracing; do
  find "$objects/bin/$folder" -path '*/_objs/*' -name '*.gcno'
done | python3 tools/coverage.py $lines
exit $status
