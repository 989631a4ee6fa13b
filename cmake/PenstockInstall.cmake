# cmake --install: the core tier as the package Penstock, and the program where it was built.
#
#   find_package(Penstock REQUIRED)
#   target_link_libraries(mine PRIVATE Penstock::report Penstock::runtime)   # or all: Penstock::core
#
#   #include <penstock/schedule/catalog.h>
#
# Public headers, each described in docs/library.md. No other header is installed.
set(PENSTOCK_PUBLIC_HEADERS
  base/result.h
  schedule/action.h schedule/placement.h schedule/schedule.h schedule/deps.h schedule/costs.h
  schedule/timeline.h schedule/text/text.h schedule/validate/validate.h schedule/catalog.h
  schedule/passes/passes.h schedule/passes/pass_table.h
  simulate/simulate.h simulate/memory.h simulate/pass_context.h
  report/report.h report/table.h report/terminal.h interop/primus/dump.h
  runtime/stage.h runtime/message.h runtime/transport.h runtime/program.h runtime/update/update.h
  runtime/measure/trace.h runtime/measure/measure.h runtime/executor/run.h runtime/emulation/emulation.h)

include(CMakePackageConfigHelpers)

set(core_folders base schedule simulate report interop runtime)
list(TRANSFORM core_folders PREPEND penstock_ OUTPUT_VARIABLE core_targets)

add_library(penstock_core INTERFACE)
add_library(Penstock::core ALIAS penstock_core)
set_target_properties(penstock_core PROPERTIES EXPORT_NAME core)
target_link_libraries(penstock_core INTERFACE ${core_targets})

install(TARGETS penstock_core penstock_options ${core_targets} EXPORT PenstockTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core)
set(staged_headers ${PROJECT_BINARY_DIR}/public_headers/penstock)
install(CODE "
  set(headers \"${PENSTOCK_PUBLIC_HEADERS}\")
  set(source \"${PROJECT_SOURCE_DIR}/src\")
  set(staged \"${staged_headers}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/StageHeaders.cmake\")" COMPONENT core)
install(DIRECTORY ${staged_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT core)

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
