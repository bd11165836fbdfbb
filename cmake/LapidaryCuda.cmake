# GPU code: for CUDA with nvcc (LAPIDARY_CUDA), and compiled for the host against the emulation of src/kernels/gpu/emulation.

if(LAPIDARY_CUDA)
  # Machine code alone, so that a device without it is told apart at once instead of compiling for minutes.
  set(LAPIDARY_CUDA_ARCHITECTURES "80-real;90a-real;100-real" CACHE STRING "What nvcc makes machine code for")
  set(CMAKE_CUDA_ARCHITECTURES "${LAPIDARY_CUDA_ARCHITECTURES}")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin REQUIRED)
  endif()
  if(PROJECT_IS_TOP_LEVEL AND CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE}")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)

  # CMake 3.25 does not know nvcc's C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)

  # Options for nvcc; warnings of the host's compiler as for all our code.
  add_library(lapidary_cuda_options INTERFACE)
  set(host_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-unknown-pragmas)
  if(LAPIDARY_WARNINGS_AS_ERRORS)
    list(APPEND host_warnings -Werror)
    target_compile_options(lapidary_cuda_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
  list(JOIN host_warnings "," host_warnings)
  target_compile_options(lapidary_cuda_options INTERFACE
                         $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings},-ffp-contract=off --threads=2>)

  # The headers and the static runtime, for host code.
  add_library(lapidary_cuda_runtime INTERFACE)
  add_library(lapidary::cuda_runtime ALIAS lapidary_cuda_runtime)
  set_target_properties(lapidary_cuda_runtime PROPERTIES EXPORT_NAME cuda_runtime)
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(lapidary_cuda_runtime INTERFACE CUDA::cudart_static)
  set_property(GLOBAL APPEND PROPERTY LAPIDARY_LIBRARIES lapidary_cuda_runtime)
endif()

# lapidary_cuda_library(<name> [DEPS <targets>...]): as lapidary_library, from the .cc and .cu files beside the caller.
function(lapidary_cuda_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  lapidary_library(${name} DEPS ${ARG_DEPS})
  file(GLOB kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
  target_sources(lapidary_${name} PRIVATE ${kernels})
  target_link_libraries(lapidary_${name} PRIVATE $<BUILD_INTERFACE:lapidary_cuda_options>)
endfunction()

# For every target that compiles .cu files for the host.
add_library(lapidary_emulated_options INTERFACE)
# Kernels are written for nvcc: its pragmas mean nothing here, or cannot always be followed.
target_compile_options(lapidary_emulated_options INTERFACE -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
if(LAPIDARY_SANITIZE)
  # Unrolled and then instrumented, attention_prefill.cu took Clang more than 110 s, so 21 s.
  target_compile_options(lapidary_emulated_options INTERFACE
                         $<$<CXX_COMPILER_ID:Clang>:-O1 "SHELL:-mllvm -pragma-unroll-threshold=0">)
endif()
if(LAPIDARY_SANITIZE MATCHES address)
  # A shadow stack for each of a thousand fibers would take gigabytes.
  target_compile_options(lapidary_emulated_options INTERFACE
                         $<IF:$<CXX_COMPILER_ID:Clang>,-fsanitize-address-use-after-return=never,--param=asan-use-after-return=0>)
endif()

# lapidary_emulated_library(<name> FROM <folder> [DEPS <targets>...]): from the .cu files of <folder> and the .cc files beside the caller,
# all compiled for the host. The caller is the only one in its folder.
function(lapidary_emulated_library name)
  cmake_parse_arguments(ARG "" "FROM" "DEPS" ${ARGN})
  file(GLOB kernels CONFIGURE_DEPENDS "${ARG_FROM}/*.cu")
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  lapidary_library(${name} DEPS ${ARG_DEPS})
  target_sources(lapidary_${name} PRIVATE ${kernels})
  target_compile_definitions(lapidary_${name} PUBLIC LAPIDARY_GPU_EMULATION)
  target_link_libraries(lapidary_${name} PRIVATE $<BUILD_INTERFACE:lapidary_emulated_options>)
endfunction()

# lapidary_emulated_test(<name> FROM <folders>... [DEPS <targets>...] [LABELS <label>]): as lapidary_test, from the .cc and .cu files of the
# folders and those beside the caller.
function(lapidary_emulated_test name)
  cmake_parse_arguments(ARG "" "" "FROM;DEPS;LABELS" ${ARGN})
  # A grid runs in one OS thread, whose fibers would only slow the thread sanitizer down.
  if(NOT ARG_LABELS)
    set(ARG_LABELS single-thread)
  endif()
  lapidary_test(${name} DEPS ${ARG_DEPS} LABELS ${ARG_LABELS})
  foreach(folder IN LISTS ARG_FROM)
    file(GLOB kernels CONFIGURE_DEPENDS "${folder}/*.cu")
    file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cc")
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
    target_sources(${name}_test PRIVATE ${sources} ${kernels})
  endforeach()
  target_link_libraries(${name}_test PRIVATE lapidary_emulated_options)
endfunction()
