# Compiler settings shared by every target, and the project's few build options.
option(SLIMPIPE_TESTS "Build the tests" ON)
set(SLIMPIPE_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, address;undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Paths relative to the tree let one clone use what another compiled. Not in Debug builds: a debugger must
# find the sources of this clone.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  endif()
endif()

add_library(slimpipe_options INTERFACE)
add_library(slimpipe::options ALIAS slimpipe_options)
# -ffp-contract=off: whether a compiler fuses a multiply and an add must not decide a bit of a result;
# kernels that want fused multiply-adds say so.
target_compile_options(slimpipe_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough -Werror -ffp-contract=off)
if(SLIMPIPE_SANITIZE)
  string(REPLACE ";" "," sanitizers "${SLIMPIPE_SANITIZE}")
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizers})
endif()
