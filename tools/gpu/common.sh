# shellcheck shell=bash disable=SC2034
# What measure.sh and readme_numbers.sh share; each sources it with its output folder. They end in the folder in which the example finds its
# model, with `out` (where files go), `root` (the project), `programs` (those of profiles/) and `llama` set.
#
# CGR_BUILD names a CMake build with -DCGR_PROFILES=ON; without it the programs are those of tools/gpu/pack.sh. CGR_COMMIT is the commit
# that files name, if git does not say it.

out=$(mkdir -p "$1" && cd "$1" && pwd) || exit
build=${CGR_BUILD:+$(cd "$CGR_BUILD" && pwd)}
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
root=$PWD llama=examples/llama/llama
if [[ ${CGR_BUILD:-} ]]; then
  programs=$build/profiles
  if [[ ! -x $build/profiles/step_cost || ! -x $build/run/$llama ]]; then
    echo "CGR_BUILD is $CGR_BUILD, expected a CMake build with -DCGR_PROFILES=ON of the targets profiles and llama" >&2
    exit 2
  fi
  cd "$build/run" || exit
else
  if [[ -f .gpu/pack.tar.xz ]]; then tar -C .gpu -xJf .gpu/pack.tar.xz && rm .gpu/pack.tar.xz; fi
  cd .gpu || { echo "there is no .gpu: CGR_BUILD names a CMake build, or tools/gpu/pack.sh makes .gpu" >&2; exit 2; }
  programs=$PWD/profiles
  export LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:-}:${CUDA_HOME:-/usr/local/cuda}/lib64
fi
CGR_COMMIT=${CGR_COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)}
CGR_DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
export CGR_COMMIT CGR_DRIVER
failed=0

run() { # file, command ...
  local file=$1 status before=$SECONDS
  shift
  echo "== $*"
  "$@" > "$out/$file" 2> "$out/$file.err"
  status=$?
  if [[ $status != 0 ]]; then failed=1; echo "== $file: exit status $status"; cat "$out/$file.err"; fi
  grep -v $'\r' "$out/$file.err" >> "$out/$file" # all but progress
  rm "$out/$file.err"
  echo "== $((SECONDS - before)) s, $SECONDS s in all"
}

# The lines that name machine, version and commit, for programs that do not print them.
add_head() { # file ...
  local version file
  version=$(sed -n 's/^#define CGR_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$root/include/cgr/base.h" | paste -sd .)
  for file in "$@"; do
    {
      printf '# device: %s\n# driver: %s\n' "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)" "$CGR_DRIVER"
      printf '# library: cgr %s\n# date: %s\n# commit: %s\n' "$version" "$(date -u +%F)" "$CGR_COMMIT"
      cat "$out/$file"
    } > "$out/$file.new"
    mv "$out/$file.new" "$out/$file"
  done
}

modes() { # mode ...
  local mode
  for mode in "$@"; do
    echo "== --mode $mode"
    "$llama" --device cuda:0 --temperature 0 --quiet --stats --mode "$mode" || return 1
  done
}

bench() { # options ...
  local shape mode
  for shape in 8b 1b; do
    for mode in full none; do
      "$llama" --device cuda:0 --bench --random-weights $shape --mode $mode "$@" || return 1
    done
  done
}
