# The CUDA toolkit, and how .cu files are compiled: as in tools/bazel/cuda.bzl.
set(CGR_WITH_CUDA OFF)
set(CGR_WITH_NVTX OFF)
set(CGR_WITH_NVTX_SCHEMAS OFF)
string(TOUPPER "${CGR_CUDA}" wanted)
if(wanted MATCHES "^(1|ON|YES|TRUE|Y)$")
  set(wanted ON)
elseif(wanted MATCHES "^(0|OFF|NO|FALSE|N)$")
  set(wanted OFF)
elseif(NOT wanted STREQUAL AUTO)
  message(FATAL_ERROR "CGR_CUDA is \"${CGR_CUDA}\", expected AUTO, ON or OFF")
endif()
if(NOT wanted STREQUAL OFF)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static)
    set(CGR_WITH_CUDA ON)
  elseif(wanted STREQUAL ON)
    message(FATAL_ERROR "CGR_CUDA is ${CGR_CUDA}, but there is no CUDA toolkit of 12.4 or later with nvcc and libcudart_static.a "
                        "(CUDAToolkit_ROOT or nvcc on PATH tell where)")
  endif()
endif()

# Numbers of all architectures, and the lowest; letters are for files of their own.
function(cgr_read_archs)
  foreach(arch ${CGR_CUDA_ARCHS})
    if(NOT arch MATCHES "^([0-9]+)[af]?$")
      message(FATAL_ERROR "CGR_CUDA_ARCHS: ${arch} is no architecture, expected one such as 80 or 90a")
    endif()
    if(CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "CGR_CUDA_ARCHS: ${arch} is too old, expected 80 or later")
    endif()
    list(APPEND numbers ${CMAKE_MATCH_1})
  endforeach()
  if(NOT numbers)
    message(FATAL_ERROR "CGR_CUDA_ARCHS is empty, expected architectures such as 80;90a")
  endif()
  list(REMOVE_DUPLICATES numbers)
  list(SORT numbers COMPARE NATURAL)
  list(GET numbers 0 lowest)
  list(TRANSFORM numbers APPEND -real OUTPUT_VARIABLE real)
  set(CGR_ARCHITECTURES ${real} ${lowest}-virtual PARENT_SCOPE)
endfunction()

if(CGR_WITH_CUDA)
  cgr_read_archs()
  if(NOT DEFINED CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${CGR_ARCHITECTURES})
  enable_language(CXX) # nvcc's host compiler
  enable_language(CUDA)
  find_path(CGR_NVTX_INCLUDE nvtx3/nvToolsExt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  if(CGR_NVTX AND CGR_NVTX_INCLUDE)
    set(CGR_WITH_NVTX ON)
    if(EXISTS ${CGR_NVTX_INCLUDE}/nvtx3/nvToolsExtPayload.h)
      set(CGR_WITH_NVTX_SCHEMAS ON)
    endif()
  endif()
  message(STATUS "cgr: with CUDA ${CUDAToolkit_VERSION} for ${CGR_CUDA_ARCHS}, NVTX ${CGR_WITH_NVTX}")
else()
  message(STATUS "cgr: the host device alone (CGR_CUDA is ${CGR_CUDA})")
endif()

# Without exceptions, type information and guarded statics, nothing of the C++ runtime is needed at link time.
# The library has each kernel for each architecture: compressed they are a fifth as large.
set(CGR_NVCC_FLAGS
    --expt-relaxed-constexpr
    -lineinfo
    -Xfatbin=-compress-all
    -Xcompiler=-fvisibility=$<IF:$<BOOL:${CGR_SHARED_TESTS}>,default,hidden>,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-Wextra)

# A target of .cu files: objects for whoever links them.
function(cgr_cuda_objects target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 17
    UNITY_BUILD OFF
    CUDA_RUNTIME_LIBRARY None
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE ${CGR_NVCC_FLAGS} $<$<BOOL:${CGR_WERROR}>:-Werror=all-warnings>)
  target_include_directories(${target} PRIVATE ${CGR_ROOT} ${CGR_ROOT}/include)
endfunction()
