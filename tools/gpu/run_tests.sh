#!/usr/bin/env bash
# Runs what tools/gpu/pack.sh packed, on a machine with a GPU: no GPU is a failure here. The last line sums up the cases.
#
#   tools/gpu/run_tests.sh [--short] [--memcheck|--racecheck|--synccheck] [pattern]
#   tools/gpu/run_tests.sh --memcheck 'runtime/re*'
#
# --short runs the tests with the tag gpu_short alone, --memcheck and the like every test under that tool of compute-sanitizer. The
# pattern is that of a test below tests/. GTEST_FILTER and the like reach the tests through the environment, as does
# CGR_MAX_CAPABILITY, which is 80 to run the kernels for older GPUs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

checker=() short=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --short) short=1 ;;
    # Not the calls that CUDA refuses: tests provoke those, and check what they answer.
    --memcheck) checker=(compute-sanitizer --tool memcheck --error-exitcode 99 --report-api-errors no) ;;
    --racecheck | --synccheck) checker=(compute-sanitizer --tool "${1#--}" --error-exitcode 99) ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
if [[ ${checker[*]} ]]; then
  command -v compute-sanitizer >/dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on PATH" >&2; exit 1; }
fi
pattern=${1:-*}

if [[ -f .gpu/pack.tar.xz ]]; then tar -C .gpu -xJf .gpu/pack.tar.xz && rm .gpu/pack.tar.xz; fi
cd .gpu || exit 1
export CGR_REQUIRE_GPU=1
export LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:-}:${CUDA_HOME:-/usr/local/cuda}/lib64

passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The number in a line of GoogleTest's summary, e.g. "[  PASSED  ] 3 tests."; 0 when there is none.
cases() { sed -n "s/^\[  $1 \] \([0-9][0-9]*\) tests\{0,1\}[.,].*/\1/p" "$log" | tail -n 1 | grep . || echo 0; }

# A program without GoogleTest is one case. One that ends badly without a failed case of its own (a crash, a finding of
# the checker) counts as one more.
count() {
  local status=$1 bad
  if ! grep -q '^\[==========\]' "$log"; then
    if [[ $status == 0 ]]; then ((passed += 1)); else ((failed += 1)); fi
    return
  fi
  bad=$(cases 'FAILED ')
  if [[ $status != 0 && $bad == 0 ]]; then bad=1; fi
  ((passed += $(cases 'PASSED '), failed += bad, skipped += $(cases 'SKIPPED')))
}

for test in $(find tests -type f -executable -path "tests/$pattern" | sort); do
  if [[ $short ]] && ! grep -qx "$test" gpu_short; then continue; fi
  if [[ ${checker[*]} && $test == *_loss_test ]]; then
    echo "== $test: left out, it provokes in a child process what the checker looks for"
    continue
  fi
  echo "== $test"
  "${checker[@]}" "./$test" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  # The checker's way to say that a program has made no call of CUDA.
  if grep -q 'terminated before first instrumented API call' "$log"; then status=0; fi
  if [[ $status != 0 ]]; then echo "== $test: exit status $status"; fi
  count "$status"
done

echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 && $((passed + skipped)) -gt 0 ]]
