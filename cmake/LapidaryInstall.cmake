# `cmake --install`: the program, the libraries with their headers, the demo model, and a package for find_package(lapidary).
include(CMakePackageConfigHelpers)

# What a program that embeds the engine links.
add_library(lapidary_umbrella INTERFACE)
add_library(lapidary::lapidary ALIAS lapidary_umbrella)
set_target_properties(lapidary_umbrella PROPERTIES EXPORT_NAME lapidary)
target_link_libraries(lapidary_umbrella INTERFACE lapidary::backend_cpu lapidary::generation)

# The command line, the reference kernels and the GPU's emulation serve the program and the tests only.
get_property(libraries GLOBAL PROPERTY LAPIDARY_LIBRARIES)
list(REMOVE_ITEM libraries lapidary_cli lapidary_server lapidary_kernels_reference lapidary_kernels_gpu_emulated
     lapidary_backend_gpu_emulated)

set(LAPIDARY_PACKAGE_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/lapidary")
set(LAPIDARY_DEMO_MODEL_DESTINATION "${CMAKE_INSTALL_DATADIR}/lapidary/models/demo")

install(TARGETS lapidary RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS lapidary_umbrella ${libraries} EXPORT lapidaryTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT lapidaryTargets NAMESPACE lapidary:: DESTINATION "${LAPIDARY_PACKAGE_DESTINATION}")
install(DIRECTORY src/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lapidary" FILES_MATCHING PATTERN "*.h"
        PATTERN "*-inl.h" EXCLUDE PATTERN "cli" EXCLUDE PATTERN "server" EXCLUDE
        PATTERN "reference" EXCLUDE PATTERN "emulation" EXCLUDE)
install(DIRECTORY models/demo/ DESTINATION "${LAPIDARY_DEMO_MODEL_DESTINATION}" PATTERN "*.md" EXCLUDE)

configure_package_config_file(cmake/lapidaryConfig.cmake.in "${PROJECT_BINARY_DIR}/lapidaryConfig.cmake"
                              INSTALL_DESTINATION "${LAPIDARY_PACKAGE_DESTINATION}" PATH_VARS LAPIDARY_DEMO_MODEL_DESTINATION)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lapidaryConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lapidaryConfig.cmake" "${PROJECT_BINARY_DIR}/lapidaryConfigVersion.cmake"
        DESTINATION "${LAPIDARY_PACKAGE_DESTINATION}")
