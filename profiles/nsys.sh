#!/usr/bin/env bash
# Runs a program under Nsight Systems so that every node of a replayed graph is in the trace, exports the trace as SQLite, and
# says where the GPU's time went.
#
#   profiles/nsys.sh [options] [--] program [arguments]
#   profiles/nsys.sh --labels labels.json bazel-bin/profiles/representative_step cuda:0 --labels labels.json
#
#   --out NAME      writes NAME.nsys-rep and NAME.sqlite (profile)
#   --labels FILE   what the program writes as its graph_labels.json: profiles/graph_time.py joins it with the trace
#   --whole         trace the whole program, its captures too; otherwise from its cudaProfilerStart to its cudaProfilerStop
#   --graphs        a bar for a whole graph in place of its nodes: tracing nodes makes replays slower, this hardly does
#   --print         show the commands and run none
#   --help          this
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=profile labels='' whole='' granularity=node print=''

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
refuse() { echo "profiles/nsys.sh: $1 (--help lists the options)" >&2; exit 2; }

while [[ ${1:-} == -* ]]; do
  case $1 in
    --out | --labels) [[ -n ${2:-} ]] || refuse "$1 needs a value" ;;&
    --out) out=$2; shift ;;
    --labels) labels=$2; shift ;;
    --whole) whole=1 ;;
    --graphs) granularity=graph ;;
    --print) print=1 ;;
    --help) usage; exit ;;
    --) shift; break ;;
    *) refuse "unknown option $1" ;;
  esac
  shift
done
[[ $# -gt 0 ]] || refuse "no program is named"
[[ -z $labels || $granularity == node ]] || refuse "--labels is for nodes, and --graphs leaves them out"

# No sampling of the CPU and no context switches: they cost time, and ask for rights that containers do not give.
profile=(nsys profile --trace=cuda,nvtx "--cuda-graph-trace=$granularity" --sample=none --cpuctxsw=none --stats=false
  --force-overwrite=true "--output=$out")
[[ $whole ]] || profile+=(--capture-range=cudaProfilerApi --capture-range-end=stop)
export_=(nsys export --type=sqlite --force-overwrite=true "--output=$out.sqlite" "$out.nsys-rep")
join=(python3 "$here/graph_time.py" -- "$out.sqlite" "$labels")

show() { printf '%q ' "$@"; echo; }
if [[ $print ]]; then
  show "${profile[@]}" "$@"
  show "${export_[@]}"
  [[ -z $labels ]] || show "${join[@]}"
  exit
fi

command -v nsys > /dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
command -v nsys > /dev/null || {
  echo "nsys is not on PATH. It is Nsight Systems: the package cuda-nsight-systems-13-0 (the toolkit's version) or" \
    "nsight-systems-cli of NVIDIA's repository, or the installer from developer.nvidia.com/nsight-systems." >&2
  exit 127
}
# Removes what an earlier run has left.
rm -f -- "$out.nsys-rep" "$out.sqlite"
begin=$(mktemp)
trap 'rm -f "$begin"' EXIT
"${profile[@]}" "$@"
[[ -f $out.nsys-rep ]] || {
  echo "nsys has written no $out.nsys-rep: a program that does not call cudaProfilerStart needs --whole" >&2
  exit 1
}
"${export_[@]}"
[[ -z $labels || $labels -nt $begin ]] || {
  echo "the program has not written $labels: those of another run say nothing of this one" >&2
  exit 1
}
[[ -z $labels ]] || "${join[@]}"
