# One library per folder of src/, one test program per folder of tests/.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(lapidary_options INTERFACE)
# Floating point: no contraction behind our back. Row invariance rests on every kernel adding in the order it is written in.
# (For nvcc: LapidaryCuda.cmake.)
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align -Wundef)
if(LAPIDARY_WARNINGS_AS_ERRORS)
  list(APPEND warnings -Werror)
endif()
target_compile_options(lapidary_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-ffp-contract=off>")
if(LAPIDARY_SANITIZE)
  # Undefined behaviour ends the program, so that a test cannot pass over it.
  target_compile_options(lapidary_options INTERFACE -fsanitize=${LAPIDARY_SANITIZE} -fno-sanitize-recover=all
                                                    -fno-omit-frame-pointer)
  target_link_options(lapidary_options INTERFACE -fsanitize=${LAPIDARY_SANITIZE})
endif()
if(LAPIDARY_BUILD_FUZZ)
  # Coverage in the libraries is what guides the fuzzers.
  target_compile_options(lapidary_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(lapidary_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# lapidary_library(<name> [DEPS <targets>...]): library lapidary_<name> from all .cc files beside the caller.
function(lapidary_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.h")
  if(sources)
    add_library(lapidary_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(lapidary_${name} PRIVATE $<BUILD_INTERFACE:lapidary_options>)
  else()
    add_library(lapidary_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(lapidary::${name} ALIAS lapidary_${name})
  set_target_properties(lapidary_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lapidary_${name} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                       $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lapidary>)
  target_link_libraries(lapidary_${name} ${scope} ${ARG_DEPS})
  if(sources AND ARG_PRIVATE_DEPS)
    target_link_libraries(lapidary_${name} PRIVATE ${ARG_PRIVATE_DEPS})
  endif()
  set_property(GLOBAL APPEND PROPERTY LAPIDARY_LIBRARIES lapidary_${name})
endfunction()

# lapidary_test(<name> [DEPS <targets>...] [LABELS <labels>...]): program <name>_test from all .cc files beside the caller, each
# case a ctest. Labels: `slow` is left out under sanitizers, `single-thread` under the thread sanitizer.
function(lapidary_test name)
  cmake_parse_arguments(ARG "" "" "DEPS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE lapidary_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE LAPIDARY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set(labels "")
  if(ARG_LABELS)
    set(labels LABELS "${ARG_LABELS}")
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
                       PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]" ${labels})
endfunction()
