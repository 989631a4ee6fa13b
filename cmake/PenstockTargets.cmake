# Functions that define the targets of the project: one library and one test program per folder.

include(GNUInstallDirs)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Precompiled headers are safe to cache only when their defines and timestamps are not compared.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1  # clones share the cache
      ${CCACHE_PROGRAM})
endif()

# mold links much faster than the default linker.
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# Options of every target. Users of an installed library get only the include folder and the standard.
add_library(penstock_options INTERFACE)
set_target_properties(penstock_options PROPERTIES EXPORT_NAME options)
target_compile_features(penstock_options INTERFACE cxx_std_20)
target_compile_options(penstock_options INTERFACE
  $<BUILD_INTERFACE:-Wall;-Wextra;$<$<BOOL:${PENSTOCK_WERROR}>:-Werror>>)
target_include_directories(penstock_options INTERFACE
  "$<BUILD_INTERFACE:${penstock_include_dirs}>" $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(PENSTOCK_SANITIZE)
  target_compile_definitions(penstock_options INTERFACE PENSTOCK_SANITIZED)
  target_compile_options(penstock_options INTERFACE
    -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1
    $<IF:$<BOOL:$<TARGET_PROPERTY:PENSTOCK_HOT>>,-O1,-O0>)  # -O1 compiles for 2.5 times as long
  target_link_options(penstock_options INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
endif()

# penstock_unity(TARGET): with PENSTOCK_UNITY, compiles 30 files at a time as one. They share headers and template
# instantiations, which take most of the compile time, and one load of the precompiled header, which takes two seconds with
# torch: batches of 10 files take a fifth to a third more CPU time. A changed file is compiled with its batch. Names in
# unnamed namespaces must be unique in a target (tools/check-names).
function(penstock_unity target)
  if(PENSTOCK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 30)
    # gcc takes all but the main file for headers and warns about their unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# penstock_hot_files(FILE...): compiles files with hot loops by themselves. What gcc inlines in a batch depends on the
# other files of the batch.
function(penstock_hot_files)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# penstock_hot_library(TARGET): sanitizers compile it with -O1, because their tests spend most of their time in it.
function(penstock_hot_library target)
  set_target_properties(${target} PROPERTIES PENSTOCK_HOT ON)
  if(PENSTOCK_SANITIZE)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # which are compiled with -O0
  endif()
endfunction()

# penstock_compile_fast(TARGET): compiles with -O1, for code whose speed does not matter.
function(penstock_compile_fast target)
  if(NOT PENSTOCK_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# penstock_sources(OUT): sets OUT to every .cpp below this folder, without subfolders that are targets of their own.
function(penstock_sources out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  file(GLOB_RECURSE targets CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
  foreach(target ${targets})
    get_filename_component(folder "${target}" DIRECTORY)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# penstock_library(NAME DEPENDS...): defines the library penstock_NAME of the sources of this folder.
function(penstock_library name)
  penstock_sources(sources)
  if(NOT sources)  # a folder without files yet
    add_library(penstock_${name} INTERFACE)
    add_library(Penstock::${name} ALIAS penstock_${name})
    target_link_libraries(penstock_${name} INTERFACE penstock_options ${ARGN})
    return()
  endif()
  add_library(penstock_${name} STATIC ${sources})
  add_library(Penstock::${name} ALIAS penstock_${name})
  set_target_properties(penstock_${name} PROPERTIES EXPORT_NAME ${name})
  penstock_unity(penstock_${name})
  target_link_libraries(penstock_${name} PUBLIC penstock_options ${ARGN})
endfunction()

# penstock_core_library(NAME DEPENDS...): the same, with the precompiled header of base.
function(penstock_core_library name)
  penstock_library(${name} ${ARGN})
  target_precompile_headers(penstock_${name} REUSE_FROM penstock_base)
endfunction()

# penstock_test(NAME [SHARDS N] [UNSANITIZED PATTERNS] DEPENDS...): defines the test program NAME_tests of the sources of this folder, and
# the ctest tests that run it: one, or N with a part of its tests each, so that no core waits for a long one. (Starting a process for
# each of its tests would take longer than most of them.) Sanitizers do not run the tests of PATTERNS, which take them minutes and run
# code that others run too. All programs share the precompiled header of base_tests.
function(penstock_test name)
  penstock_test_program(${name} ${ARGN})
  if(name STREQUAL base)
    target_precompile_headers(base_tests PRIVATE
      <gtest/gtest.h> <fmt/format.h> <tl/expected.hpp> <algorithm> <functional> <random> <string> <vector>)
  else()
    target_precompile_headers(${name}_tests REUSE_FROM base_tests)
  endif()
endfunction()

# penstock_engine_test(NAME [SHARDS N] DEPENDS...): the same, with the precompiled header of the engine.
# Targets share it only if they are compiled alike: -fPIC, not -fPIE.
function(penstock_engine_test name)
  penstock_test_program(${name} ${ARGN})
  set_target_properties(${name}_tests PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name}_tests PRIVATE -fPIC)
  target_precompile_headers(${name}_tests REUSE_FROM penstock_graph)
endfunction()

# penstock_test_inputs(TEST PATH...): names files and folders that a test depends on. tools/once runs the test again when they, or
# what they include, have changed.
function(penstock_test_inputs test)
  set_property(TEST ${test} APPEND PROPERTY REQUIRED_FILES ${ARGN})
endfunction()

function(penstock_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "SHARDS;UNSANITIZED" "")
  penstock_sources(sources)
  add_executable(${name}_tests ${sources})
  penstock_unity(${name}_tests)
  set_target_properties(${name}_tests PROPERTIES UNITY_BUILD_BATCH_SIZE 10)  # their files share fewer headers
  penstock_compile_fast(${name}_tests)
  target_include_directories(${name}_tests PRIVATE "${PROJECT_SOURCE_DIR}")  # "tests/FOLDER/HELPER.h"
  target_link_libraries(${name}_tests PRIVATE penstock_options ${test_UNPARSED_ARGUMENTS} GTest::gtest_main)
  if(NOT test_SHARDS)
    set(test_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${test_SHARDS})
    set(test ${name})
    if(test_SHARDS GREATER 1)
      set(test ${name}.${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name}_tests --gtest_brief=1)
    # They start before shorter tests, also when ctest has not yet measured any.
    set_tests_properties(${test} PROPERTIES TIMEOUT 1200 LABELS ${name} COST 100)
    if(test_SHARDS GREATER 1)
      set_tests_properties(${test} PROPERTIES ENVIRONMENT "GTEST_TOTAL_SHARDS=${test_SHARDS};GTEST_SHARD_INDEX=${index}")
    endif()
    if(PENSTOCK_SANITIZE AND test_UNSANITIZED)
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-${test_UNSANITIZED}")
    endif()
    penstock_test_inputs(${test} "${CMAKE_CURRENT_SOURCE_DIR}")
  endforeach()
endfunction()
