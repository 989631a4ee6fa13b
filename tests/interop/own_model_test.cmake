# Installs the core and the engine into an empty prefix, then configures, builds and runs
# examples/own_model on it, as a user would, without Penstock's own source or build folder:
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DCXX=... -P own_model_test.cmake
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(run result)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(${result} ${code} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()
function(step)
  run(code ${ARGV})
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
function(expect part)
  string(FIND "${output}" "${part}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "'${part}' is not in:\n${output}")
  endif()
endfunction()

# Without the engine, the package reports the missing component.
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component core)
set(configure ${CMAKE_COMMAND} -G Ninja -S ${SOURCE} -B ${WORK}/build
    -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug -DCMAKE_UNITY_BUILD=ON
    -DCMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Werror)
run(code ${configure})
if(code EQUAL 0)
  message(FATAL_ERROR "the engine was found although it is not installed:\n${output}")
endif()
expect("the engine is not installed")

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component engine)
step(${configure})
step(${CMAKE_COMMAND} --build ${WORK}/build)

# It trains like a built-in model, on its own source as text, and continues from a checkpoint.
set(train ${WORK}/build/own_model ${SOURCE}/mixer.yaml data.path=${SOURCE}/mixer.cpp)
step(${train} checkpoint.every=30)
expect("60 steps: held-out loss")
expect("model.decay=0.8")
foreach(file config.yaml metrics.jsonl model.safetensors checkpoints/step-60/manifest.json)
  if(NOT EXISTS ${WORK}/runs/mixer/${file})
    message(FATAL_ERROR "own_model did not write ${file}")
  endif()
endforeach()
step(${train} name=continued resume=${WORK}/runs/mixer/checkpoints/step-30)
expect("60 steps: held-out loss")

# Its keys are checked like built-in models' keys.
run(code ${train} model.decy=0.5)
expect("did you mean 'model.decay'?")
run(code ${train} decay=2)
expect("model.decay: 2 is out of range: at most 0.999")
run(code ${train} name=other decay=0.5 resume=${WORK}/runs/mixer/checkpoints/step-30)
expect("is of another model: model.decay is 0.8 there, 0.5 here")
