# The library: its sources, and the targets cgr::cgr, cgr::cgr_static and cgr::validation.
set(CGR_ROOT ${CMAKE_CURRENT_SOURCE_DIR})
set(CGR_C_WARNINGS -Wall -Wextra -Wshadow -pedantic -Wstrict-prototypes)
if(CGR_WERROR)
  list(APPEND CGR_C_WARNINGS -Werror)
endif()
set(CGR_OPTIMISED $<$<AND:$<CONFIG:Release>,$<NOT:$<COMPILE_LANGUAGE:CUDA>>>:-O2>) # what is measured; CMake has -O3
if(CGR_SANITIZER)
  set(CGR_OPTIMISED $<$<CONFIG:Release>:-O1>)
endif()
find_package(Threads REQUIRED)

include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)
cgr_find_sources(${CGR_ROOT} ${CGR_WITH_CUDA})

# C11 as in tools/bazel/defs.bzl: -std=c11 hides POSIX, which _DEFAULT_SOURCE gives back. Files have functions of the same names,
# so an enclosing project may not merge them (UNITY_BUILD).
function(cgr_c_target target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden UNITY_BUILD OFF)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${CGR_C_WARNINGS}> ${CGR_OPTIMISED})
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:_DEFAULT_SOURCE>)
  target_include_directories(${target} PRIVATE ${CGR_ROOT} ${CGR_ROOT}/include)
endfunction()

add_library(cgr_objects OBJECT ${CGR_SOURCES})
cgr_c_target(cgr_objects)
target_compile_options(cgr_objects PRIVATE -ffunction-sections -fdata-sections)
if(CGR_SHARED_TESTS) # tests call internal functions; the code is nearly that of the release
  set_target_properties(cgr_objects PROPERTIES C_VISIBILITY_PRESET default)
  target_compile_options(cgr_objects PRIVATE -fno-semantic-interposition)
endif()
set(CGR_OBJECTS $<TARGET_OBJECTS:cgr_objects>)
set(CGR_LIBS m Threads::Threads)
set(CGR_LIBS_PRIVATE "-lpthread -lm")
if(CGR_WITH_CUDA)
  set(built "with CUDA ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}")
  set_property(SOURCE ${CGR_ROOT}/base/version.c APPEND PROPERTY COMPILE_DEFINITIONS "CGR_BUILT_WITH=\"${built}\"")
  if(CGR_WITH_NVTX)
    set_property(SOURCE ${CGR_ROOT}/base/version.c APPEND PROPERTY COMPILE_DEFINITIONS "CGR_BUILT_NVTX=\" and NVTX\"")
    set(CGR_NVTX_DEFINES CGR_WITH_NVTX=1 $<$<BOOL:${CGR_WITH_NVTX_SCHEMAS}>:CGR_NVTX_SCHEMAS=1>)
  endif()
  target_compile_definitions(cgr_objects PRIVATE ${CGR_NVTX_DEFINES})
  set_property(SOURCE ${CGR_ROOT}/kernels/table.c ${CGR_ROOT}/interop/table.c APPEND PROPERTY COMPILE_DEFINITIONS CGR_WITH_CUDA=1)
  target_include_directories(cgr_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  cgr_cuda_objects(cgr_kernels ${CGR_CUDA_SOURCES})
  list(APPEND CGR_OBJECTS $<TARGET_OBJECTS:cgr_kernels>)
  # Files of one architecture, in a folder that is named for it.
  foreach(arch ${CGR_NATIVE_ARCHS})
    if(arch IN_LIST CGR_CUDA_ARCHS)
      cgr_cuda_objects(cgr_kernels_${arch} ${CGR_CUDA_SOURCES_${arch}})
      set_target_properties(cgr_kernels_${arch} PROPERTIES CUDA_ARCHITECTURES ${arch}-real)
      string(TOUPPER ${arch} upper)
      target_compile_definitions(cgr_objects PRIVATE CGR_HAS_SM${upper}=1)
      list(APPEND CGR_OBJECTS $<TARGET_OBJECTS:cgr_kernels_${arch}>)
    endif()
  endforeach()
  list(APPEND CGR_LIBS CUDA::cudart_static)
  set(CGR_LIBS_PRIVATE "-lcudart_static -ldl -lrt -lpthread -lm")
endif()

# What both libraries tell their users. The linker is C's: nothing needs the C++ runtime.
function(cgr_library target type name)
  add_library(${target} ${type} ${ARGN})
  add_library(cgr::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(${target} INTERFACE ${CGR_ROOT}/include)
endfunction()

cgr_library(cgr SHARED cgr ${CGR_OBJECTS})
target_link_libraries(cgr PRIVATE ${CGR_LIBS})
target_link_options(cgr PRIVATE -Wl,--version-script,${CGR_ROOT}/libcgr.map $<$<NOT:$<BOOL:${CGR_SANITIZER}>>:-Wl,--no-undefined>)
set_target_properties(cgr PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${CGR_SOVERSION}
  LINK_DEPENDS ${CGR_ROOT}/libcgr.map)

cgr_library(cgr_static STATIC cgr_static ${CGR_OBJECTS})
set_target_properties(cgr_static PROPERTIES OUTPUT_NAME cgr)
target_link_libraries(cgr_static INTERFACE ${CGR_LIBS})

# What tests link: libcgr.a, or libcgr_dev.so, which is not installed. With CUDA, library and tests then share one runtime of it.
set(CGR_TESTED cgr_static)
if(CGR_SHARED_TESTS)
  set(CGR_TESTED cgr_dev)
  add_library(cgr_dev SHARED EXCLUDE_FROM_ALL ${CGR_OBJECTS})
  set_target_properties(cgr_dev PROPERTIES LINKER_LANGUAGE C)
  set(libs ${CGR_LIBS})
  list(TRANSFORM libs REPLACE "^CUDA::cudart_static$" CUDA::cudart)
  target_link_libraries(cgr_dev PUBLIC ${libs})
endif()

# The validation layer of device.h, linked besides either of them.
cgr_library(cgr_validation STATIC validation ${CGR_VALIDATION_SOURCES})
cgr_c_target(cgr_validation)

# A build folder may be in the tree and be called anything: Bazel's //... must not follow what is linked there, or it finds packages.
function(cgr_hide_from_bazel folder)
  file(TOUCH ${folder}/DONT_FOLLOW_SYMLINKS_WHEN_TRAVERSING_THIS_DIRECTORY_VIA_A_RECURSIVE_TARGET_PATTERN)
endfunction()
