# Finds xxHash, which comes without a CMake package, and defines xxhash::xxhash and XxHash_VERSION.
find_path(XxHash_INCLUDE_DIR xxhash.h)
find_library(XxHash_LIBRARY xxhash)
if(XxHash_INCLUDE_DIR)
  file(STRINGS ${XxHash_INCLUDE_DIR}/xxhash.h numbers
    REGEX "^#define XXH_VERSION_(MAJOR|MINOR|RELEASE) ")
  string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
  list(JOIN numbers "." XxHash_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XxHash REQUIRED_VARS XxHash_LIBRARY XxHash_INCLUDE_DIR
  VERSION_VAR XxHash_VERSION)
if(XxHash_FOUND AND NOT TARGET xxhash::xxhash)
  add_library(xxhash::xxhash UNKNOWN IMPORTED)
  set_target_properties(xxhash::xxhash PROPERTIES IMPORTED_LOCATION ${XxHash_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${XxHash_INCLUDE_DIR})
endif()
mark_as_advanced(XxHash_INCLUDE_DIR XxHash_LIBRARY)
