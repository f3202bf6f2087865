# For those who change cgr: ccache, and the sanitizers with the options of .bazelrc.
if(CGR_CCACHE)
  find_program(CGR_CCACHE_PROGRAM ccache)
  if(CGR_CCACHE_PROGRAM)
    foreach(language C CXX CUDA)
      if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
        set(CMAKE_${language}_COMPILER_LAUNCHER ${CGR_CCACHE_PROGRAM})
      endif()
    endforeach()
  endif()
endif()

if(CGR_SANITIZER)
  if(NOT CGR_SANITIZER MATCHES "^(address|undefined|thread)$")
    message(FATAL_ERROR "CGR_SANITIZER is \"${CGR_SANITIZER}\", expected address, undefined or thread")
  endif()
  set(CGR_CUDA OFF)
  add_compile_options(-O1 -g -fno-omit-frame-pointer -fsanitize=${CGR_SANITIZER}
    $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>) # gcc 12 finds it in its own <regex>
  add_link_options(-fsanitize=${CGR_SANITIZER})
  if(CGR_SANITIZER STREQUAL undefined)
    add_compile_options(-fno-sanitize-recover=all)
  elseif(CGR_SANITIZER STREQUAL thread)
    add_compile_options($<$<C_COMPILER_ID:GNU>:-Wno-tsan>) # it warns of atomic_thread_fence
  endif()
endif()
