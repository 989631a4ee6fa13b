# cmake --install installs the package Penstock, and the program if it was built. The engine is a
# separate component, because it requires libtorch.
#
#   find_package(Penstock REQUIRED)
#   target_link_libraries(mine PRIVATE Penstock::report Penstock::runtime)   # or all: Penstock::core
#
#   find_package(Penstock REQUIRED COMPONENTS engine)
#   target_link_libraries(mine PRIVATE Penstock::train)
#
#   #include <penstock/schedule/catalog.h>
#
# Public headers; docs/library.md describes each. No other header is installed.
set(PENSTOCK_PUBLIC_HEADERS
  base/result.h base/index.h base/mutex.h
  schedule/action.h schedule/placement.h schedule/schedule.h schedule/deps.h schedule/topology.h schedule/costs.h
  schedule/stage_costs.h schedule/stage_costs.def schedule/update_rule.h schedule/vocabulary.h schedule/untrained.h
  schedule/pricing/microbatch_lengths.h schedule/pricing/collective_time.h
  schedule/timeline.h schedule/sent_message.h
  schedule/text/text.h schedule/validate/validate.h schedule/catalog.h
  schedule/passes/passes.h schedule/passes/pass_table.h
  simulate/simulate.h simulate/noise/jitter.h simulate/runs/monte_carlo.h simulate/steady_state.h
  simulate/memory/memory_over_time.h simulate/memory/memory_by_kind.h simulate/pass_context.h
  explain/action_at.h explain/inputs.h explain/bubbles.h explain/critical_path.h explain/explanation.h
  report/report.h report/table.h report/palette.h report/terminal_colors.h report/terminal.h interop/primus/dump.h
  runtime/stage.h runtime/stage_update.h runtime/message.h runtime/transport.h runtime/program.h runtime/update/update.h
  runtime/measure/trace.h runtime/measure/measure.h runtime/executor/run.h runtime/executor/session.h runtime/emulation/emulation.h)

set(PENSTOCK_ENGINE_HEADERS
  base/text/fields.h base/link_speed.h graph/ops/random_ops.h
  model/model.h model/model_entry.h model/init.h model/layers.h model/rope.h
  model_spec/attention_sizes.h model_spec/huggingface_format.h model_spec/layer_range.h model_spec/model_config.h
  model_spec/model_shape.h model_spec/model_spec.h model_spec/rope_scaling.h
  model/context_parallel.h model/sequence_context.h model/tensor_parallel.h checkpoint/layout.h
  collective/collective_count.h runtime/processes/process_group.h config/train_config.h train/train.h)

# An installed header can include only installed ones.
foreach(header IN LISTS PENSTOCK_PUBLIC_HEADERS PENSTOCK_ENGINE_HEADERS)
  penstock_find_header(file ${header})
  file(STRINGS ${file} includes REGEX "^#include \"")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST PENSTOCK_PUBLIC_HEADERS AND NOT included IN_LIST PENSTOCK_ENGINE_HEADERS)
      message(FATAL_ERROR "${file} is installed and includes ${included}, which is not: "
                          "list it in cmake/PenstockInstall.cmake")
    endif()
  endforeach()
endforeach()

include(CMakePackageConfigHelpers)

set(core_targets "")
foreach(folder IN LISTS penstock_top_folders)
  if("installed" IN_LIST penstock_flags_${folder})
    list(APPEND core_targets penstock_${folder})
  endif()
endforeach()

add_library(penstock_core INTERFACE)
add_library(Penstock::core ALIAS penstock_core)
set_target_properties(penstock_core PROPERTIES EXPORT_NAME core)
target_link_libraries(penstock_core INTERFACE ${core_targets})

install(TARGETS penstock_core penstock_options ${core_targets} EXPORT PenstockTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core)

function(install_headers component)
  set(staged ${PROJECT_BINARY_DIR}/public_headers/${component}/penstock)
  install(CODE "
    set(headers \"${ARGN}\")
    set(folders \"${penstock_include_dirs}\")
    set(staged \"${staged}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/StageHeaders.cmake\")" COMPONENT ${component})
  install(DIRECTORY ${staged} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${component})
endfunction()
install_headers(core ${PENSTOCK_PUBLIC_HEADERS})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${package_folder} COMPONENT core)
# The default libtorch of the installed package. -DTorch_ROOT selects another one of the same version.
get_filename_component(PENSTOCK_TORCH_ROOT "${Torch_INCLUDE_DIR}" DIRECTORY)
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
  if(PENSTOCK_MPI)
    list(APPEND programs penstock_engine_mpi)
  endif()
  install_headers(engine ${PENSTOCK_ENGINE_HEADERS})
  install(TARGETS penstock_graph penstock_model penstock_train EXPORT PenstockEngineTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT engine)
  install(EXPORT PenstockEngineTargets NAMESPACE Penstock:: DESTINATION ${package_folder} COMPONENT engine)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindTorch.cmake DESTINATION ${package_folder} COMPONENT engine)
endif()
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program OPTIONAL)
if(PENSTOCK_CUDA)
  install(TARGETS penstock_cuda LIBRARY DESTINATION lib/penstock COMPONENT program OPTIONAL)
endif()
# The playground: of the released module, or what tools/playground has built, if it has.
install(FILES "${PENSTOCK_PROGRAM_DIR}/share/penstock/playground.html" DESTINATION ${CMAKE_INSTALL_DATADIR}/penstock COMPONENT program OPTIONAL)
install(FILES ${PROJECT_SOURCE_DIR}/build/playground.html DESTINATION ${CMAKE_INSTALL_DATADIR}/penstock COMPONENT program OPTIONAL)

# penstock_install_shell_files(DATA MAN COMPONENT): installs the manual pages and completions, which the built program writes.
function(penstock_install_shell_files data man component)
  set(folder ${PROJECT_BINARY_DIR}/shell)
  install(CODE "
    set(penstock_program \"$<TARGET_FILE:penstock>\")
    set(shell_files \"${folder}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/WriteShellFiles.cmake\")" COMPONENT ${component})
  install(DIRECTORY ${folder}/man1 DESTINATION ${man} COMPONENT ${component} OPTIONAL)
  install(FILES ${folder}/penstock DESTINATION ${data}/bash-completion/completions COMPONENT ${component} OPTIONAL)
  install(FILES ${folder}/_penstock DESTINATION ${data}/zsh/site-functions COMPONENT ${component} OPTIONAL)
  install(FILES ${folder}/penstock.fish DESTINATION ${data}/fish/vendor_completions.d COMPONENT ${component} OPTIONAL)
endfunction()
penstock_install_shell_files(${CMAKE_INSTALL_DATADIR} ${CMAKE_INSTALL_MANDIR} program)
