#!/usr/bin/env bash
# Runs a program under Nsight Compute, one kernel at a time, kernels inside replayed graphs included.
#
#   profiles/ncu.sh [options] [--] program [arguments]
#   profiles/ncu.sh --kernel attention --count 4 bazel-bin/profiles/representative_step cuda:0
#
#   --out NAME      writes NAME.ncu-rep (kernels)
#   --range NAME    what is launched in cgr's NVTX range of this name: cgr_step_launch; of an eager step also layer, attention ...
#   --kernel REGEX  the kernels whose name fits, without their parameters: "prologue|epilogue"; all of them without it
#   --skip N        leave out the first N of these (0)
#   --count N       then measure N (8)
#   --set SET       basic, detailed or full: how much is measured, and how often each kernel is run again for it (detailed)
#   --metrics LIST  these metrics alone in place of a set, with commas between them
#   --whole         from the program's start; otherwise from its cudaProfilerStart to its cudaProfilerStop
#   --print         show the command and run nothing
#   --help          this
#
# A replayed node counts as launched where the graph is: its ranges are those around cgr_step_launch, not those of its capture.
#
# A kernel that is measured runs alone, several times, with its memory put back and the caches flushed in between: the times are a
# kernel's own, not those of a step. Kernels that wait for others that should run alongside them do not end. A GPU's counters may be
# closed to users (ERR_NVGPUCTRPERM).
set -euo pipefail
out=kernels range='' kernel='' skip=0 count=8 set=detailed metrics='' whole='' print=''

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
refuse() { echo "profiles/ncu.sh: $1 (--help lists the options)" >&2; exit 2; }

while [[ ${1:-} == -* ]]; do
  case $1 in
    --out | --range | --kernel | --skip | --count | --set | --metrics) [[ -n ${2:-} ]] || refuse "$1 needs a value" ;;&
    --skip | --count) [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 is $2, expected a whole number" ;;&
    --set) [[ $2 == @(basic|detailed|full) ]] || refuse "--set is $2, expected basic, detailed or full" ;;&
    --out) out=$2; shift ;;
    --range) range=$2; shift ;;
    --kernel) kernel=$2; shift ;;
    --skip) skip=$((10#$2)); shift ;;
    --count) count=$((10#$2)); shift ;;
    --set) set=$2; shift ;;
    --metrics) metrics=$2; shift ;;
    --whole) whole=1 ;;
    --print) print=1 ;;
    --help) usage; exit ;;
    --) shift; break ;;
    *) refuse "unknown option $1" ;;
  esac
  shift
done
[[ $# -gt 0 ]] || refuse "no program is named"
[[ $count -gt 0 ]] || refuse "--count is 0, expected 1 or more"

profile=(ncu --graph-profiling node --target-processes all --launch-skip "$skip" --launch-count "$count")
if [[ $metrics ]]; then profile+=(--metrics "$metrics"); else profile+=(--set "$set"); fi
# A single name needs the slash, which says that the range is pushed and popped.
[[ -z $range ]] || profile+=(--nvtx --nvtx-include "cgr@$range/")
[[ -z $kernel ]] || profile+=(--kernel-name-base function --kernel-name "regex:$kernel")
[[ $whole ]] || profile+=(--profile-from-start off)
profile+=(--force-overwrite --export "$out")

if [[ $print ]]; then
  printf '%q ' "${profile[@]}" "$@"
  echo
  exit
fi

command -v ncu > /dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
command -v ncu > /dev/null || {
  echo "ncu is not on PATH. It is Nsight Compute: the package cuda-nsight-compute-13-0 (the toolkit's version) of NVIDIA's" \
    "repository, or the installer from developer.nvidia.com/nsight-compute." >&2
  exit 127
}
rm -f -- "$out.ncu-rep" # what an earlier run has left is not this one's
"${profile[@]}" "$@"
[[ -f $out.ncu-rep ]] || {
  echo "ncu has written no $out.ncu-rep: no kernel fits --kernel and --range, or a program without cudaProfilerStart needs --whole" >&2
  exit 1
}
ncu --import "$out.ncu-rep" --page details
