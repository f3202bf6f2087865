#!/usr/bin/env bash
# Measures anew what README.md says, in one call of less than ten minutes on a machine with a GPU, and prints how long each part took:
#
#   CGR_BUILD=build tools/gpu/readme_numbers.sh profiles/results/h100_2026-11-28
#
# `profiles/report/run --results --readme` then makes profiles/RESULTS.md and the tables of README.md. CGR_BUILD and CGR_COMMIT are as for
# measure.sh. CGR_LLAMA_CPP is the folder in which profiles/peers/llama_cpp.sh has built llama.cpp; without it, it is left out.
set -uo pipefail
: "${1:?usage: tools/gpu/readme_numbers.sh OUTPUT_FOLDER}"
llama_cpp=${CGR_LLAMA_CPP:+$(cd "$CGR_LLAMA_CPP" && pwd)} || exit
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# First what is compared with others, in one go; the longest last, should the time run out.
run llama_bench.txt bench --bench-contexts 128
if [[ $llama_cpp ]]; then
  run llama_cpp.txt python3 "$root/profiles/peers/llama_cpp.py" --build "$llama_cpp" --depths 128 8b 1b
fi
run llama.txt "$llama" --device cuda:0 --temperature 0 --quiet --stats
run llama_modes.txt modes full piecewise none
run step_cost.txt "$programs/step_cost" cuda:0 300 40 tight,standing
run planner_cost.txt "$programs/planner_cost" cuda:0
run self_test_cost.txt "$programs/self_test_cost" cuda:0
run back_to_back.txt "$programs/back_to_back" cuda:0 60 20
run attention_cost.txt "$programs/attention_cost" cuda:0 'decode bs1 |decode bs8 |decode bs64 |mixed|prefill'
run mixed_cost.txt "$programs/mixed_cost" cuda:0 200 20
run wait_cost.txt "$programs/wait_cost" cuda:0
add_head llama.txt llama_modes.txt
exit $failed
