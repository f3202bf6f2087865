#!/usr/bin/env bash
# Brings llama.cpp to a machine with a GPU that has no network, for profiles/peers/llama_cpp.py.
#
#   profiles/peers/llama_cpp.sh pack PACK.tar.xz      where pip works: the sources that a build of its library for CUDA needs
#   profiles/peers/llama_cpp.sh build PACK FOLDER     where nvcc is: FOLDER/llama_cpp, the bindings and the libraries they load
#
#   --version V   pack: of llama-cpp-python, which brings a llama.cpp of its own (0.3.36)
#   --arch A      build: the GPU's compute capability without the dot (90)
#   --jobs N      build: compilers at a time (one for each core)
#   --cpu         build: without CUDA, to try the program
#   --help        this
#
# PACK is what `pack` wrote, or a folder with its files. An interrupted build continues.
# Needs CMake and Ninja or make; Python for `pack` alone.
set -euo pipefail
version=0.3.36 arch=90 jobs=$(nproc) cuda=ON names=()

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
refuse() { echo "profiles/peers/llama_cpp.sh: $1 (--help lists the options)" >&2; exit 2; }

while [[ $# -gt 0 ]]; do
  case $1 in
    --version | --arch | --jobs) [[ -n ${2:-} ]] || refuse "$1 needs a value" ;;&
    --arch | --jobs) [[ $2 =~ ^[1-9][0-9]*$ ]] || refuse "$1 is $2, expected a whole number above 0" ;;&
    --version) version=$2; shift ;;
    --arch) arch=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --cpu) cuda=OFF ;;
    --help) usage; exit ;;
    -*) refuse "unknown option $1" ;;
    *) names+=("$1") ;;
  esac
  shift
done

pack() { # PACK.tar.xz
  local folder sources
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' RETURN
  # Its metadata is made by its build backend, which pip may take as a wheel.
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --dest "$folder" \
    "llama-cpp-python==$version"
  tar -C "$folder" -xzf "$folder/llama_cpp_python-$version.tar.gz"
  sources=$folder/llama_cpp_python-$version
  grep -om1 'ggml-org/llama.cpp@[0-9a-f]*' "$sources/CHANGELOG.md" | sed 's/.*@//' > "$folder/commit" ||
    { echo "the changes of llama-cpp-python $version do not say which llama.cpp it brings" >&2; return 1; }
  mkdir -p "$folder/pack/llama_cpp"
  # The bindings alone: the whole package needs more packages.
  cp "$sources"/llama_cpp/{llama_cpp,_ctypes_extensions}.py "$folder/pack/llama_cpp"
  sed -i 's/^from typing_extensions import/from typing import/' "$folder/pack/llama_cpp/_ctypes_extensions.py"
  printf '__version__ = "%s"\n__commit__ = "%s"\n' "$version" "$(cat "$folder/commit")" > "$folder/pack/llama_cpp/__init__.py"
  cp -R "$sources"/vendor/llama.cpp/{CMakeLists.txt,LICENSE,cmake,ggml,include,src,vendor} "$folder/pack"
  # Other devices, and what only programs of llama.cpp use.
  find "$folder/pack/ggml/src" -mindepth 1 -maxdepth 1 -type d ! -name ggml-cpu ! -name ggml-cuda -exec rm -r {} +
  rm -r "$folder/pack/vendor/cpp-httplib" "$folder/pack/vendor/miniaudio"/*.h "$folder/pack/vendor/stb"/*.h
  tar -C "$folder/pack" -c . | xz -9 > "$1"
  echo "llama.cpp $(cat "$folder/commit") of llama-cpp-python $version: $(du -h "$1" | cut -f1) in $1"
}

build() { # PACK FOLDER
  local sources=$1 libraries='' generator=()
  mkdir -p "$2"
  if [[ ! -d $1 ]]; then
    sources=$2/sources
    if [[ ! -f $sources/CMakeLists.txt ]]; then
      mkdir -p "$sources"
      tar -C "$sources" -xf "$1"
    fi
  fi
  [[ -f $sources/llama_cpp/llama_cpp.py ]] || refuse "$1 is not what \`pack\` writes: it has no llama_cpp/llama_cpp.py"
  if [[ $cuda == ON ]]; then
    command -v nvcc > /dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
    command -v nvcc > /dev/null || {
      echo "nvcc is not on PATH and not below CUDA_HOME: install the CUDA toolkit, or build with --cpu" >&2
      exit 127
    }
    libraries=";$(dirname "$(command -v nvcc)")/../lib64"
  fi
  if command -v ninja > /dev/null; then generator=(-G Ninja); fi
  cmake -S "$sources" -B "$2/build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    -DGGML_CUDA="$cuda" -DCMAKE_CUDA_ARCHITECTURES="$arch" -DGGML_CUDA_NCCL=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
    -DLLAMA_BUILD_APP=OFF -DGGML_CCACHE=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN$libraries" \
    > "$2/configure.log" 2>&1 ||
    { tail -n 30 "$2/configure.log" >&2; exit 1; }
  cmake --build "$2/build" --parallel "$jobs" --target llama
  mkdir -p "$2/llama_cpp/lib"
  cp "$sources"/llama_cpp/*.py "$2/llama_cpp"
  cp -a "$2"/build/bin/lib*.so* "$2/llama_cpp/lib"
  echo "llama.cpp is in $2/llama_cpp"
}

case ${names[0]:-} in
  pack)
    [[ ${#names[@]} == 2 ]] || refuse "pack takes one name, that of the file it writes"
    pack "${names[1]}"
    ;;
  build)
    [[ ${#names[@]} == 3 ]] || refuse "build takes two names, those of the pack and of the folder to build in"
    [[ -e ${names[1]} ]] || refuse "there is no ${names[1]}"
    build "${names[1]}" "${names[2]}"
    ;;
  *) refuse "the first word is ${names[0]:-missing}, expected pack or build" ;;
esac
