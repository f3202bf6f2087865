#!/usr/bin/env bash
# Formats C, C++ and CUDA with the one version of clang-format that the tree is written with (.clang-format has the style):
#   tools/format.sh [FILE...]        formats these files; without any, all files that git tracks
#   tools/format.sh --check [BASE]   says which files changed since BASE (a commit; default: HEAD, so what is not committed yet) are not
#                                    formatted, and how; fails if there are any. --check --all looks at all tracked files
# A program of another version gives other lines, so none is used: PATH's only if it is of this version, else PyPI's, which is installed
# once into tools/.venv. Where PyPI cannot be reached, a check says so and passes. Public headers are formatted by hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=14.0.6
venv=tools/.venv/clang-format-$version

of_version() { [[ "$("$1" --version 2>/dev/null) " == *"clang-format version $version"[[:space:]]* ]]; }

# Sets `program`; says why not.
find_program() {
  for program in "${CLANG_FORMAT:-}" clang-format clang-format-14 "$venv/bin/clang-format"; do
    if [[ -n $program ]] && of_version "$program"; then return 0; fi
  done
  echo "clang-format $version is installed from PyPI into $venv" >&2
  if python3 -m venv "$venv" >&2 && "$venv/bin/pip" install -q --disable-pip-version-check "clang-format==$version" >&2 &&
    of_version "$program"; then
    return 0
  fi
  rm -rf "$venv"
  return 1
}

# Of names on standard input, separated by NUL: the files that this style is for and that exist.
sources() {
  while IFS= read -r -d '' file; do
    case $file in
      include/cgr/* | tests/docs/preludes/*) ;; # by hand; no C yet
      *.c | *.h | *.cc | *.cu | *.cuh) if [[ -f $file && ! -L $file ]]; then printf '%s\0' "$file"; fi ;;
    esac
  done
}

# Changed since a commit, or not known to git yet.
changed() {
  git diff --name-only --diff-filter=d -z "$1" --
  git ls-files --others --exclude-standard -z
}

check() {
  local bad=0
  for file in "${files[@]}"; do
    "$program" --style=file "$file" | diff -u --label "$file" --label "$file, formatted" "$file" - || bad=$((bad + 1))
  done
  if ((bad)); then
    echo "$bad of ${#files[@]} files are not formatted: tools/format.sh"
    return 1
  fi
  echo "${#files[@]} files are formatted"
}

checks=0
if [[ ${1:-} == --check ]]; then
  checks=1
  shift
  if [[ ${1:-} == --all ]]; then
    mapfile -d '' files < <(git ls-files -z | sources)
  else
    base=$(git rev-parse --verify --quiet "${1:-HEAD}^{commit}") || { echo "${1:-HEAD} is no commit here" >&2; exit 2; }
    mapfile -d '' files < <(changed "$base" | sources)
  fi
elif (($#)); then
  mapfile -d '' files < <(printf '%s\0' "$@" | sources)
else
  mapfile -d '' files < <(git ls-files -z | sources)
fi
if ((${#files[@]} == 0)); then
  echo "no file to format"
  exit 0
fi
if ! find_program; then
  echo "there is no clang-format $version: neither on PATH nor, it seems, from PyPI" >&2
  ((checks)) || exit 1
  echo "format check skipped"
  exit 0
fi
if ((checks)); then
  check
else
  "$program" --style=file -i "${files[@]}"
fi
