# Finds the libraries that every build needs. If some are missing, prints one line with the command that installs them on
# Debian and Ubuntu.
set(missing_packages "")

# need_library(DEBIAN_PACKAGE NAME...): as find_package(NAME...).
macro(need_library package)
  find_package(${ARGN} QUIET)
  if(NOT ${ARGV1}_FOUND)
    list(APPEND missing_packages ${package})
  endif()
endmacro()
# need_header(DEBIAN_PACKAGE VARIABLE HEADER): as find_path(VARIABLE HEADER).
macro(need_header package variable header)
  find_path(${variable} ${header})
  if(NOT ${variable})
    list(APPEND missing_packages ${package})
  endif()
endmacro()

need_library(libfmt-dev fmt)
need_library(libexpected-dev tl-expected)
need_library(libyaml-cpp-dev yaml-cpp)
need_library(nlohmann-json3-dev nlohmann_json)
need_library(libcli11-dev CLI11)
need_library(zlib1g-dev ZLIB)
need_library(libicu-dev ICU COMPONENTS uc)
need_library(libssl-dev OpenSSL COMPONENTS Crypto)
need_header(libpcre2-dev PCRE2_INCLUDE_DIR pcre2.h)
need_header(libsentencepiece-dev SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
need_header(libxxhash-dev XXHASH_INCLUDE_DIR xxhash.h)

if(missing_packages)
  list(JOIN missing_packages " " missing_packages)
  message(FATAL_ERROR "Libraries are missing; run: apt-get install -y --no-install-recommends ${missing_packages}")
endif()
