#!/usr/bin/env bash
# Runs the checks of .clang-tidy on C and C++ sources, as the compile commands of a CMake build say to compile them:
#   tools/tidy.sh [FILE...]          these files, or the folders' sources; without any, the library's
#   tools/tidy.sh --changed [BASE]   the files that changed since BASE (a commit; default: HEAD, so what is not committed yet)
# BUILD names the build folder (default: build/dev, made by `cmake --preset dev`). CLANG_TIDY names the program; .clang-tidy is written
# for version 14 and later. Fails when a check finds something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${BUILD:-build/dev}
program=${CLANG_TIDY:-clang-tidy}
command -v "$program" >/dev/null || { echo "no $program: Debian's clang-tidy, or CLANG_TIDY=PROGRAM" >&2; exit 2; }
[[ -f $build/compile_commands.json ]] || { echo "no $build/compile_commands.json: cmake --preset dev, or BUILD=FOLDER" >&2; exit 2; }

library=(base devices buffers requests planners kernels interop tracing graphs runtime)
if [[ ${1:-} == --changed ]]; then
  base=$(git rev-parse --verify --quiet "${2:-HEAD}^{commit}") || { echo "${2:-HEAD} is no commit here" >&2; exit 2; }
  mapfile -t asked < <(git diff --name-only --diff-filter=d "$base" -- && git ls-files --others --exclude-standard)
elif (($#)); then
  mapfile -t asked < <(git ls-files -- "$@")
else
  mapfile -t asked < <(git ls-files -- "${library[@]}")
fi

# Only what the build compiles has a command. CUDA's sources are nvcc's.
files=()
for file in "${asked[@]}"; do
  if [[ $file =~ \.(c|cc)$ ]] && grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then files+=("$file"); fi
done
if ((${#files[@]} == 0)); then
  echo "no file to check"
  exit 0
fi
printf '%s\0' "${files[@]}" | xargs -0 -P "${JOBS:-2}" -n 8 "$program" -p "$build" --quiet --warnings-as-errors='*'
echo "${#files[@]} files have nothing to mend"
