# Sets installed_torch to the folder of the torch that pip's interpreter imports, or to nothing.
#
# The interpreter itself is asked, because torch may be anywhere on its path: in the environment, in the base that an
# environment inherits from (--system-site-packages), among the user's packages, or where a .pth file points. pip hides these
# from an isolated build by two variables, so a second try runs without them.
find_package(Python COMPONENTS Interpreter REQUIRED)
set(ask "import importlib.util as util; found = util.find_spec('torch'); print(found.submodule_search_locations[0] if found and found.origin else '')")
set(installed_torch "")
foreach(environment "" "--unset=PYTHONPATH;--unset=PYTHONNOUSERSITE")
  if(NOT installed_torch)
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env ${environment} "${Python_EXECUTABLE}" -c "${ask}"
                    WORKING_DIRECTORY / OUTPUT_VARIABLE installed_torch OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endforeach()
