# shellcheck shell=bash
# For bazelw: whether CUDA kernels are compiled. Bazel by itself, and `build`, compile them wherever there is a toolkit.

# A driver's device of Linux or WSL, which CUDA_VISIBLE_DEVICES does not hide. CGR_DEV is /dev, but in tests.
gpu_is_visible() {
  local device
  [[ ! -v CUDA_VISIBLE_DEVICES || ${CUDA_VISIBLE_DEVICES:--1} != -1 ]] || return 1
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

# Whether the caller has chosen: by a configuration, or by what repositories.bzl and the tests read.
cuda_is_chosen() {
  local argument
  [[ -z ${CGR_CUDA:-} && ${CGR_REQUIRE_GPU:-0} == 0 ]] || return 0
  for argument; do
    case $argument in
      --) return 1 ;;
      --config | --config=* | --repo_env=CGR_CUDA=*) return 0 ;;
    esac
  done
  return 1
}

runs_or_tests() {
  local argument
  [[ ${1:-} != test ]] || return 0
  [[ ${1:-} == run ]] || return 1
  for argument; do [[ $argument != //examples[/:]* ]] || return 0; done
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
  has_toolkit && ! cuda_is_chosen "$@" || return 0
  if ! runs_or_tests "$@"; then return 0; fi
  if gpu_is_visible; then
    [[ -e bazel-out/k8-opt/bin/kernels/cuda ]] ||
      say "CUDA kernels are compiled, too: $(minutes $CUDA_SECONDS) the first time (--config=nocuda leaves them out)"
    return 0
  fi
  say "no GPU is visible, so the host device alone is built (--config=cuda adds CUDA: $(minutes $CUDA_SECONDS) the first time)"
  chosen=("$1" --config=nocuda "${@:2}")
}
