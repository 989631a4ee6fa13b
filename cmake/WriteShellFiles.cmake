# Has `penstock_program`, if it was built, write its manual pages and completion scripts to `shell_files`.
file(REMOVE_RECURSE ${shell_files})
if(EXISTS ${penstock_program})
  file(MAKE_DIRECTORY ${shell_files}/man1)
  execute_process(COMMAND ${penstock_program} man --directory ${shell_files}/man1 COMMAND_ERROR_IS_FATAL ANY)
  foreach(file bash=penstock zsh=_penstock fish=penstock.fish)
    string(REGEX MATCH "(.*)=(.*)" match ${file})
    execute_process(COMMAND ${penstock_program} completion ${CMAKE_MATCH_1} OUTPUT_FILE ${shell_files}/${CMAKE_MATCH_2}
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endif()
