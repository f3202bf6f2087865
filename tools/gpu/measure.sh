#!/usr/bin/env bash
# Runs the programs of profiles/, the example and its checks on a machine with a GPU and writes one file per program, as they are
# kept under profiles/results/. Works on what tools/gpu/pack.sh packed, or on a CMake build:
#
#   CGR_COMMIT=$(git rev-parse --short HEAD) tools/gpu/measure.sh OUTPUT_FOLDER
#   CGR_BUILD=build tools/gpu/measure.sh OUTPUT_FOLDER      # cmake -B build -DCGR_PROFILES=ON && cmake --build build -t profiles llama
#
# The comparison with transformers needs a python3 that has torch, transformers and safetensors; without one it is left out.
set -uo pipefail
: "${1:?usage: tools/gpu/measure.sh OUTPUT_FOLDER}"
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run step_cost.txt "$programs/step_cost" cuda:0 # four minutes
run tail_cost.txt "$programs/tail_cost" cuda:0 1000 5 tight,0.3ms,1ms,5ms,touched,busy 8 10 # three minutes
run back_to_back.txt "$programs/back_to_back" cuda:0 # a minute
run attention_cost.txt "$programs/attention_cost" cuda:0 # three minutes
run mixed_attention.txt "$programs/mixed_attention" cuda:0 all # a minute and a half
run mixed_cost.txt "$programs/mixed_cost" cuda:0 300 50
run fork_cost.txt "$programs/fork_cost" cuda:0 300 20
run page_cost.txt "$programs/page_cost" cuda:0 300 20
if python3 -c 'import cgr' 2>/dev/null; then
  run python_cost.txt python3 "$root/profiles/python_cost.py" cuda:0
fi
for program in wait_cost self_test_cost kernel_cost planner_cost flashmla_cost flashinfer_cost fa3_cost value_check_cost transform_cost calibrate \
  tracing_cost nvtx_cost timing_cost label_coverage; do
  run $program.txt "$programs/$program" cuda:0
done
run nvtx_cost_tool.txt "$programs/nvtx_cost" cuda:0 tool
run label_coverage_piecewise.txt "$programs/label_coverage" cuda:0 --kind piecewise
run llama.txt "$llama" --device cuda:0 --temperature 0 --stats
run llama_check.txt "$llama" --device cuda:0 --check --steps 500
run llama_modes.txt modes full piecewise full-and-piecewise none
run llama_bench.txt bench
if python3 -c 'import torch, transformers, safetensors' 2>/dev/null; then
  for device in cuda:0 host; do
    run "transformers_${device%:0}.log" python3 "$root/examples/llama/compare_transformers.py" --binary "$llama" --device "$device" \
      --commit "$CGR_COMMIT" --out "$out/transformers_${device%:0}.json"
  done
fi
add_head llama.txt llama_check.txt llama_modes.txt
exit $failed
