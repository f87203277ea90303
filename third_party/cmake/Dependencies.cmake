# Every dependency, found where the system's packages put it. third_party/README.md is the ledger:
# version range, licence, what for. scripts/setup installs them.
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Dnnl REQUIRED)     # third_party/cmake/FindDnnl.cmake
find_package(Highway REQUIRED)  # third_party/cmake/FindHighway.cmake
find_package(XxHash REQUIRED)   # third_party/cmake/FindXxHash.cmake
if(NOT TARGET yaml-cpp AND TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp ALIAS yaml-cpp::yaml-cpp)
endif()
