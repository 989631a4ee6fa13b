# Installs the build into an empty prefix, then configures, builds and runs examples/own_schedule on
# it, as a user would: cmake -DROOT=... -DBUILD=... -DSOURCE=... -DWORK=... -DCXX=... -P install_test.cmake
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(step)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component core)
step(${CMAKE_COMMAND} -G Ninja -S ${SOURCE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Werror)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/own_schedule)
foreach(file eager_1f1b.csv eager_1f1b.html)
  if(NOT EXISTS ${WORK}/${file})
    message(FATAL_ERROR "own_schedule did not write ${file}")
  endif()
endforeach()

# The installed program runs.
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/whole --component program)
step(${WORK}/whole/bin/penstock simulate --schedule zb-auto,zbv)
foreach(file man/man1/penstock.1 man/man1/penstock-simulate.1 bash-completion/completions/penstock
        zsh/site-functions/_penstock fish/vendor_completions.d/penstock.fish)
  if(NOT EXISTS ${WORK}/whole/share/${file})
    message(FATAL_ERROR "share/${file} is not installed")
  endif()
endforeach()

# All headers are below include/penstock and include no torch header. Each compiles alone, even if an
# include folder that comes first has headers of the same names (base/result.h and so on).
file(GLOB installed RELATIVE ${WORK}/prefix/include ${WORK}/prefix/include/*)
if(NOT installed STREQUAL "penstock")
  message(FATAL_ERROR "headers are installed as ${installed}, not only below penstock/")
endif()
file(GLOB_RECURSE headers RELATIVE ${WORK}/prefix/include ${WORK}/prefix/include/*.h)
list(LENGTH headers count)
if(count LESS 25)
  message(FATAL_ERROR "only ${count} headers are installed")
endif()
foreach(header ${headers})
  file(STRINGS ${WORK}/prefix/include/${header} found REGEX "#include [<\"](torch|ATen|c10)/")
  if(found)
    message(FATAL_ERROR "${header}: ${found}")
  endif()
  string(REPLACE "penstock/" "" own_name ${header})
  file(WRITE ${WORK}/own/${own_name} "#error a header of the embedding program is included\n")
  file(WRITE ${WORK}/alone.cpp "#include <${header}>\n")
  step(${CXX} -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I${WORK}/own -I${WORK}/prefix/include alone.cpp)
endforeach()

# A project that embeds the source tree, perhaps with another compiler, gets no -Werror by default.
step(${CMAKE_COMMAND} -G Ninja -S ${ROOT} -B ${WORK}/plain -DCMAKE_CXX_COMPILER=${CXX}
     -DPENSTOCK_ENGINE=OFF -DPENSTOCK_TESTS=OFF)
file(STRINGS ${WORK}/plain/compile_commands.json strict REGEX "-Werror")
if(strict)
  message(FATAL_ERROR "warnings are errors by default: ${strict}")
endif()
