# Every dependency, found where the system's packages put it. third_party/README.md is the ledger:
# versions, licence, what for. scripts/setup installs them.
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface only; MPI's C++ bindings are deprecated
find_package(Threads REQUIRED)
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt 9.1 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Dnnl 2.6 REQUIRED)     # third_party/cmake/FindDnnl.cmake
find_package(Highway 1.0 REQUIRED)  # third_party/cmake/FindHighway.cmake
find_package(XxHash 0.8 REQUIRED)   # third_party/cmake/FindXxHash.cmake
if(NOT TARGET yaml-cpp::yaml-cpp)  # the name since 0.8
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
