#!/usr/bin/env bash
# Runs the programs of profiles/, the example and its checks on a machine with a GPU and writes one file per program, as they are
# kept under profiles/results/. Works on what tools/gpu/pack.sh packed.
#
#   CGR_COMMIT=$(git rev-parse --short HEAD) tools/gpu/measure.sh OUTPUT_FOLDER
#
# The comparison with transformers needs a python3 that has torch, transformers and safetensors; without one it is left out.
set -uo pipefail
out=$(mkdir -p "${1:?usage: tools/gpu/measure.sh OUTPUT_FOLDER}" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
script=$PWD/examples/llama/compare_transformers.py
if [[ -f .gpu/pack.tar.xz ]]; then tar -C .gpu -xJf .gpu/pack.tar.xz && rm .gpu/pack.tar.xz; fi
cd .gpu || exit 1
export LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:-}:${CUDA_HOME:-/usr/local/cuda}/lib64
CGR_COMMIT=${CGR_COMMIT:-unknown}
CGR_DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
export CGR_COMMIT CGR_DRIVER
failed=0

run() { # file, command ...
  local file=$1
  shift
  echo "== $*"
  "$@" > "$out/$file" 2>&1 || { failed=1; echo "== $file: exit status $?"; }
}

head_of() { # the lines that name machine and commit, for programs that do not print them
  printf '# device: %s\n# driver: %s\n# date: %s\n# commit: %s\n' "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" \
    "$CGR_DRIVER" "$(date -u +%F)" "$CGR_COMMIT"
}

run step_cost.txt profiles/step_cost cuda:0 # four minutes
run back_to_back.txt profiles/back_to_back cuda:0 # a minute
run attention_cost.txt profiles/attention_cost cuda:0 # three minutes
run mixed_cost.txt profiles/mixed_cost cuda:0 300 50
run fork_cost.txt profiles/fork_cost cuda:0 300 20
run wait_cost.txt profiles/wait_cost cuda:0 # a minute
run self_test_cost.txt profiles/self_test_cost cuda:0
run kernel_cost.txt profiles/kernel_cost cuda:0
run planner_cost.txt profiles/planner_cost cuda:0
run flashmla_cost.txt profiles/flashmla_cost cuda:0
run flashinfer_cost.txt profiles/flashinfer_cost cuda:0
run fa3_cost.txt profiles/fa3_cost cuda:0
run value_check_cost.txt profiles/value_check_cost cuda:0
run calibrate.txt profiles/calibrate cuda:0
run tracing_cost.txt profiles/tracing_cost cuda:0
run nvtx_cost.txt profiles/nvtx_cost cuda:0
run nvtx_cost_tool.txt profiles/nvtx_cost cuda:0 tool
run timing_cost.txt profiles/timing_cost cuda:0
run label_coverage.txt profiles/label_coverage cuda:0
run label_coverage_piecewise.txt profiles/label_coverage cuda:0 --kind piecewise
run llama.txt examples/llama/llama --device cuda:0 --temperature 0 --stats --metrics "$out/metrics.prom"
run llama_check.txt examples/llama/llama --device cuda:0 --check --steps 500
modes() {
  for mode in full piecewise full-and-piecewise none; do
    echo "== --mode $mode"
    examples/llama/llama --device cuda:0 --temperature 0 --quiet --stats --mode "$mode" || return 1
  done
}
run llama_modes.txt modes
if python3 -c 'import torch, transformers, safetensors' 2>/dev/null; then
  run transformers_cuda.log python3 "$script" --binary examples/llama/llama --device cuda:0 --commit "$CGR_COMMIT" --out "$out/transformers_cuda.json"
  run transformers_host.log python3 "$script" --binary examples/llama/llama --device host --commit "$CGR_COMMIT" --out "$out/transformers_host.json"
fi
for file in llama.txt llama_check.txt llama_modes.txt; do
  head_of | cat - "$out/$file" > "$out/$file.new" && mv "$out/$file.new" "$out/$file"
done
exit $failed
