# Copies `headers` from `folders` to `staged` and prefixes their includes with penstock/. In the tree,
# headers are included as "schedule/catalog.h". Programs include the installed ones as
# <penstock/schedule/catalog.h>, which cannot collide with headers of their own or of other libraries.
file(REMOVE_RECURSE ${staged})
foreach(header IN LISTS headers)
  foreach(folder IN LISTS folders)
    if(EXISTS ${folder}/${header})
      file(READ ${folder}/${header} text)
    endif()
  endforeach()
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <penstock/\\1>" text "${text}")
  file(WRITE ${staged}/${header} "${text}")
endforeach()
