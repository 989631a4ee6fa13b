# Copies `headers` from `source` to `staged` and prefixes their includes with penstock/. In the tree,
# headers are included as "schedule/catalog.h". Programs include the installed ones as
# <penstock/schedule/catalog.h>, which cannot collide with headers of their own or of other libraries.
file(REMOVE_RECURSE ${staged})
foreach(header IN LISTS headers)
  file(READ ${source}/${header} text)
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <penstock/\\1>" text "${text}")
  file(WRITE ${staged}/${header} "${text}")
endforeach()
