# cmake --install: the core tier as the package Penstock, and the program where it was built.
#
#   find_package(Penstock REQUIRED)
#   target_link_libraries(mine PRIVATE Penstock::report Penstock::runtime)   # or all: Penstock::core

include(CMakePackageConfigHelpers)

set(core_folders base schedule simulate report runtime)
list(TRANSFORM core_folders PREPEND penstock_ OUTPUT_VARIABLE core_targets)

add_library(penstock_core INTERFACE)
add_library(Penstock::core ALIAS penstock_core)
set_target_properties(penstock_core PROPERTIES EXPORT_NAME core)
target_link_libraries(penstock_core INTERFACE ${core_targets})

install(TARGETS penstock_core penstock_options ${core_targets} EXPORT PenstockTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core)
foreach(folder ${core_folders})
  # Headers below algorithms/ serve its own files alone.
  install(DIRECTORY src/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/penstock COMPONENT core
          FILES_MATCHING PATTERN "*.h" PATTERN algorithms EXCLUDE)
endforeach()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${package_folder} COMPONENT core)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/PenstockConfig.cmake.in
  ${PROJECT_BINARY_DIR}/PenstockConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PenstockConfig.cmake
        ${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT core)
set(programs penstock)
if(PENSTOCK_ENGINE)
  list(APPEND programs penstock_engine)
endif()
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program OPTIONAL)
