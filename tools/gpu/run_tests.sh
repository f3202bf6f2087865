#!/usr/bin/env bash
# Runs what tools/gpu/pack.sh packed, on a machine with a GPU: no GPU is a failure here. The last line sums up the cases.
#
#   tools/gpu/run_tests.sh [--short] [--jobs N] [--shards N] [--memcheck|--racecheck|--synccheck] [pattern]
#   tools/gpu/run_tests.sh --memcheck 'runtime/re*'
#
# --short runs only the tests with the tag gpu_short, --memcheck and the like every test under that tool of compute-sanitizer. The
# pattern is that of a test below tests/. --jobs runs N tests at a time; one that fails next to others, which take memory and time
# from it, runs again alone, and that run counts. Racecheck keeps memory for each launch: fewer jobs. --shards cuts each program
# into N processes, as a slow checker needs; a program that is not GoogleTest's runs N times. GTEST_FILTER and the like reach the
# tests through the environment, as does CGR_MAX_CAPABILITY, which is 80 to run the kernels for older GPUs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

checker=() short='' jobs=1 shards=1
while [[ ${1:-} == --* ]]; do
  case $1 in
    --short) short=1 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --shards) shards=${2:?--shards needs a number}; shift ;;
    # Not the calls that CUDA refuses: tests provoke those, and check what they answer.
    --memcheck) checker=(compute-sanitizer --tool memcheck --error-exitcode 99 --launch-timeout 0 --report-api-errors no) ;;
    --racecheck | --synccheck) checker=(compute-sanitizer --tool "${1#--}" --error-exitcode 99 --launch-timeout 0) ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
if [[ ${checker[*]} ]]; then
  command -v compute-sanitizer >/dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on PATH" >&2; exit 1; }
  export CGR_REPETITIONS=${CGR_REPETITIONS:-40} # of the 1,000 of tests/runtime/repetition_test
  export CGR_UNDER_CHECKER=1                    # one kernel runs after the other
fi
pattern=${1:-*}

if [[ -f .gpu/pack.tar.xz ]]; then tar -C .gpu -xJf .gpu/pack.tar.xz && rm .gpu/pack.tar.xz; fi
cd .gpu || exit 1
export CGR_REQUIRE_GPU=1
export LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:-}:${CUDA_HOME:-/usr/local/cuda}/lib64

passed=0 failed=0 skipped=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# The number in a line of GoogleTest's summary, e.g. "[  PASSED  ] 3 tests."; 0 when there is none.
cases() { sed -n "s/^\[  $1 \] \([0-9][0-9]*\) tests\{0,1\}[.,].*/\1/p" "$2" | tail -n 1 | grep . || echo 0; }

# A program without GoogleTest is one case. One that ends badly without a failed case of its own (a crash, a finding of
# the checker) counts as one more.
count() { # exit status, log
  local status=$1 log=$2 bad
  if ! grep -q '^\[==========\]' "$log"; then
    if [[ $status == 0 ]]; then ((passed += 1)); else ((failed += 1)); fi
    return
  fi
  bad=$(cases 'FAILED ' "$log")
  if [[ $status != 0 && $bad == 0 ]]; then bad=1; fi
  ((passed += $(cases 'PASSED ' "$log"), failed += bad, skipped += $(cases 'SKIPPED' "$log")))
}

declare -A test_of=() # by process
again=()

start() { # test, or test:shard
  local test=${1%%:*} shard=()
  if [[ $1 == *:* ]]; then shard=(env GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX="${1##*:}"); fi
  mkdir -p "$logs/${test%/*}"
  "${shard[@]}" "${checker[@]}" "./$test" > "$logs/$1" 2>&1 &
  test_of[$!]=$1
}

# Waits for one of those that run and reports it.
finish() { # 1 when tests run side by side
  local process status test log
  wait -n -p process "${!test_of[@]}"
  status=$?
  test=${test_of[$process]} log=$logs/${test_of[$process]}
  unset "test_of[$process]"
  # The checker's way to say that a program has made no call of CUDA.
  if grep -q 'terminated before first instrumented API call' "$log" && grep -q '^\[  PASSED  \]' "$log" && ! grep -q '^\[  FAILED  \]' "$log"; then
    status=0
  fi
  echo "== $test"
  cat "$log"
  if [[ $status != 0 ]]; then echo "== $test: exit status $status"; fi
  if [[ $status != 0 && $1 == 1 ]]; then again+=("$test"); else count "$status" "$log"; fi
}

for test in $(find tests -type f -executable -path "tests/$pattern" | sort); do
  if [[ $short ]] && ! grep -qx "$test" gpu_short; then continue; fi
  if [[ ${checker[*]} && $test == *_loss_test ]]; then
    echo "== $test: left out, it provokes in a child process what the checker looks for"
    continue
  elif [[ ${checker[*]} && $test == tests/tracing/ranges_test ]]; then
    echo "== $test: left out, the checker is itself the one tool that NVTX has room for"
    continue
  fi
  for ((shard = 0; shard < shards; shard++)); do
    if ((${#test_of[@]} >= jobs)); then finish $((jobs > 1)); fi
    if ((shards > 1)); then start "$test:$shard"; else start "$test"; fi
  done
done
while ((${#test_of[@]})); do finish $((jobs > 1)); done

for test in "${again[@]}"; do
  echo "== $test: again, alone"
  start "$test"
  finish 0
done

echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 && $((passed + skipped)) -gt 0 ]]
