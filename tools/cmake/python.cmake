# The Python package (CGR_PYTHON): its extension of the stable ABI with libcgr.so next to it; component `python` of the install.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
  OUTPUT_VARIABLE free_threaded OUTPUT_STRIP_TRAILING_WHITESPACE)
if(free_threaded)
  message(FATAL_ERROR "cgr needs a Python with the GIL, and ${Python_EXECUTABLE} is a free-threaded build, which has no stable ABI")
endif()
set(folder ${CGR_ROOT}/bindings/python)
set(generated ${CMAKE_CURRENT_BINARY_DIR}/python)
file(GLOB_RECURSE scripts CONFIGURE_DEPENDS ${folder}/generator/*.py)
file(GLOB headers CONFIGURE_DEPENDS ${CGR_ROOT}/include/cgr/*.h ${CGR_ROOT}/include/cgr/interop/*.h)
set(package ${generated}/cgr/enums.py ${generated}/cgr/_bound.py ${generated}/cgr/_cgr.pyi)
add_custom_command(
  OUTPUT ${generated}/src/generated.h ${generated}/src/tables.c ${generated}/src/functions.c ${package}
  COMMAND ${Python_EXECUTABLE} -B ${folder}/generate.py ${CGR_ROOT}/include ${generated}/src ${generated}/cgr
  DEPENDS ${folder}/generate.py ${scripts} ${headers})

file(GLOB sources CONFIGURE_DEPENDS ${folder}/src/*.c)
add_library(cgr_python MODULE ${sources} ${generated}/src/tables.c ${generated}/src/functions.c ${generated}/src/generated.h)
cgr_c_target(cgr_python)
target_compile_options(cgr_python PRIVATE -Wno-pedantic) # methods are stored as pointers of one type
target_compile_definitions(cgr_python PRIVATE Py_LIMITED_API=0x030b0000)
target_include_directories(cgr_python PRIVATE ${folder}/src ${generated}/src)
target_include_directories(cgr_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(cgr_python PRIVATE cgr cgr_validation)
set_target_properties(cgr_python PROPERTIES PREFIX "" OUTPUT_NAME _cgr SUFFIX .abi3.so INSTALL_RPATH "$ORIGIN"
  LIBRARY_OUTPUT_DIRECTORY ${generated}/cgr)

install(TARGETS cgr_python LIBRARY DESTINATION cgr COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:cgr> DESTINATION cgr RENAME libcgr.so.${CGR_SOVERSION} COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${package} DESTINATION cgr COMPONENT python EXCLUDE_FROM_ALL)
