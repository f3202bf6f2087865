#!/usr/bin/env bash
# Shows on this machine what Nsight makes of a step of cgr, and which of its tools work here.
#
#   profiles/nsight_demo.sh OUT [PROGRAM]
#
# PROGRAM is a built representative_step; without one, that of Bazel or of tools/gpu/pack.sh. Writes into the folder OUT:
#
#   ncu_step.txt   Nsight Compute: kernels of a replayed graph, found by the NVTX range of the launch, then those of an eager step's
#                  attention, found by its own range; time, memory throughput and registers of each
#   nsys_step.txt  Nsight Systems: each command, what it printed and its exit status. The tool is also looked for inside the
#                  installation of Nsight Compute, whose copy of it can lack what writes reports
#
# The exit status is 1 if Nsight Compute did not work, whatever Nsight Systems did.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
refuse() { echo "profiles/nsight_demo.sh: $1 (--help says more)" >&2; exit 2; }
[[ ${1:-} != --help ]] || { usage; exit; }
[[ $# == 1 || $# == 2 ]] || refuse "$# names are given, expected a folder for the results and perhaps a program"
mkdir -p "$1" || exit 1
out=$(cd "$1" && pwd)
program=${2:-}
for built in "$here"/../{bazel-bin,.gpu}/profiles/representative_step; do
  if [[ -z $program && -x $built ]]; then program=$built; fi
done
[[ -x $program ]] || refuse "${program:-representative_step} is not built: name the program that is"
program=$(realpath "$program")

PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
metrics=gpu__time_duration.sum,dram__bytes.sum.per_second,dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread
one_step=(cuda:0 --layers 1 --replays 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

gpu() { nvidia-smi "--query-gpu=$1" --format=csv,noheader 2> /dev/null | head -n 1; }
head_of() { # tool
  local version
  version=$("$1" --version 2> /dev/null | grep -i version | tail -n 1)
  printf '# program: profiles/nsight_demo\n# device: %s\n# driver: %s\n# tool: %s\n# date: %s\n# commit: %s\n' \
    "$(gpu name)" "${CGR_DRIVER:-$(gpu driver_version)}" "$1 ${version:-is not on PATH}" "$(date -u +%F)" "${CGR_COMMIT:-unknown}"
}

run() { # command ...: prints it, its output and its exit status, which it returns
  local words=("${@/#$program/representative_step}") status
  printf '\n$ '
  printf '%q ' "${words[@]/#$here\//profiles/}"
  echo
  timeout 120 "$@" 2>&1 | cut -c1-160 | tail -n 150
  status=${PIPESTATUS[0]}
  echo "# exit status: $status"
  return "$status"
}

# By the script that the documents name; its own command comes first.
ncu_run() { # options of ncu.sh ...
  printf '\n# '
  "$here/ncu.sh" --print "${@/#$program/representative_step}"
  run "$here/ncu.sh" "$@"
}

failed=0
(
  head_of ncu
  ncu_run --range cgr_step_launch --metrics "$metrics" --count 16 "$program" "${one_step[@]}" || failed=1
  ncu_run --range attention --metrics "$metrics" --count 4 "$program" "${one_step[@]}" --kind none || failed=1
  exit $failed
) > "$out/ncu_step.txt" || failed=1

if ! command -v nsys > /dev/null; then
  inside=$(find -L /opt/nvidia "${CUDA_HOME:-/usr/local/cuda}" -maxdepth 5 -path '*/target-linux-x64/nsys' 2> /dev/null | tail -n 1)
fi
{
  if [[ ${inside:-} ]]; then
    PATH=$PATH:$(dirname "$inside")
    echo "# nsys is not on PATH; this is $inside"
  fi
  head_of nsys
  run "$here/nsys.sh" --out step "$program" "${one_step[@]}"
  if [[ -f step.qdstrm && ! -f step.nsys-rep ]]; then
    echo "# nsys has written its raw events, step.qdstrm, and has not made a report of them"
  fi
  if [[ -f step.nsys-rep ]]; then
    run nsys stats --force-export=true --report nvtx_sum,cuda_gpu_kern_sum step.nsys-rep
  fi
} > "$out/nsys_step.txt"
exit $failed
