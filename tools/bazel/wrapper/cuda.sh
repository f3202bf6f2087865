# shellcheck shell=bash disable=SC2034,SC2154
# For bazelw: whether CUDA kernels are compiled. Bazel by itself, and `build`, compile them wherever there is a toolkit.

# A driver's device of Linux or WSL, which CUDA_VISIBLE_DEVICES does not hide: CUDA sees the devices before the first invalid one.
# CGR_DEV is /dev, but in tests.
gpu_is_visible() {
  local device
  [[ ! -v CUDA_VISIBLE_DEVICES || $CUDA_VISIBLE_DEVICES =~ ^([0-9]|GPU-|MIG-) ]] || return 1
  for device in "${CGR_DEV:-/dev}"/nvidia[0-9]* "${CGR_DEV:-/dev}"/dxg; do
    [[ ! -e $device ]] || return 0
  done
  return 1
}

# As tools/bazel/repositories.bzl looks for one.
has_toolkit() {
  if [[ -n ${CUDA_HOME:-} ]]; then
    [[ -x $CUDA_HOME/bin/nvcc ]]
  else
    command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]
  fi
}

# Where Bazel's command is: after options of its own (--output_base=x test //...). Sets `command` and `command_at`.
find_command() {
  local argument
  command='' command_at=0
  for argument; do
    [[ $argument == -* ]] || { command=$argument && return; }
    command_at=$((command_at + 1))
  done
}

# Whether the caller has chosen: by a configuration of .bazelrc that says it, or by what repositories.bzl and the tests read.
cuda_is_chosen() {
  local argument before=
  [[ -z ${CGR_CUDA:-} && ${CGR_REQUIRE_GPU:-0} == 0 ]] || return 0
  for argument; do
    [[ $argument != -- ]] || return 1
    [[ $before != --config ]] || argument=--config=$argument
    case $argument in
      --config=cuda | --config=nocuda | --config=[atu]*san | --config=coverage_counters | --repo_env=CGR_CUDA=* | CGR_CUDA=*) return 0 ;;
    esac
    before=$argument
  done
  return 1
}

# Tests, and examples that are run, by any name that Bazel has for them.
runs_or_tests() {
  local argument
  [[ $command != test ]] || return 0
  [[ $command == run ]] || return 1
  for argument; do
    [[ $argument != -- ]] || return 1
    [[ $argument != -* && $argument =~ ^(@[^/]*)?(//)?examples([/:].*)?$ ]] && return 0
  done
  return 1
}

minutes() { # of how many core-seconds
  local cores
  cores=$(nproc 2>/dev/null || echo 1)
  echo "about $((($1 / cores + 59) / 60)) minute$([[ $(($1 / cores)) -le 60 ]] || echo s) on $cores core$([[ $cores == 1 ]] || echo s)"
}

# Sets `chosen`, the arguments for Bazel. CUDA_SECONDS is about what nvcc 13.0 takes on one core for all kernels that the example and the
# tests need, for the architectures of the default (230 s by Bazel's profile).
CUDA_SECONDS=240
choose_cuda() {
  chosen=("$@") # bazelw reads it
  find_command "$@"
  has_toolkit && ! cuda_is_chosen "$@" || return 0
  if ! runs_or_tests "$@"; then return 0; fi
  if gpu_is_visible; then
    [[ -e $root/bazel-out/k8-opt/bin/kernels/cuda ]] ||
      say "CUDA kernels are compiled, too: $(minutes $CUDA_SECONDS) the first time (--config=nocuda leaves them out)"
    return 0
  fi
  say "no GPU is visible, so the host device alone is built (--config=cuda adds CUDA: $(minutes $CUDA_SECONDS) the first time)"
  chosen=("${@:1:command_at+1}" --config=nocuda "${@:command_at+2}")
}
