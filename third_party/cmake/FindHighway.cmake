# Finds Highway and defines hwy::hwy and Highway_VERSION. Its own CMake package is not used: Debian's and
# Ubuntu's refer to parts (hwy_contrib, hwy_test) that this project does not need.
find_path(Highway_INCLUDE_DIR hwy/highway.h)
find_library(Highway_LIBRARY hwy)
if(Highway_INCLUDE_DIR)
  # Newer versions keep the number in base.h.
  foreach(header highway.h base.h)
    file(STRINGS ${Highway_INCLUDE_DIR}/hwy/${header} numbers
      REGEX "^#define HWY_(MAJOR|MINOR|PATCH) ")
    if(numbers)
      break()
    endif()
  endforeach()
  string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
  list(JOIN numbers "." Highway_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highway REQUIRED_VARS Highway_LIBRARY Highway_INCLUDE_DIR
  VERSION_VAR Highway_VERSION)
if(Highway_FOUND AND NOT TARGET hwy::hwy)
  add_library(hwy::hwy UNKNOWN IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES IMPORTED_LOCATION ${Highway_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Highway_INCLUDE_DIR})
endif()
mark_as_advanced(Highway_INCLUDE_DIR Highway_LIBRARY)
