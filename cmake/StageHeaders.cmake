# Copies `headers` from `source` to `staged` as they are installed. Sources include each other from
# src/ ("schedule/catalog.h"); a program that uses the library includes <penstock/schedule/catalog.h>,
# which cannot collide with its own or another library's headers.
file(REMOVE_RECURSE ${staged})
foreach(header IN LISTS headers)
  file(READ ${source}/${header} text)
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <penstock/\\1>" text "${text}")
  file(WRITE ${staged}/${header} "${text}")
endforeach()
