# Everything that comes from Debian's packages. Each target named here is what the layers link.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Protobuf REQUIRED)
find_package(simdjson REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Boost 1.74 REQUIRED)

# oneDNN: Debian's config file asks for OpenCL, which a CPU build does not need.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(chairlift_dnnl INTERFACE)
target_include_directories(chairlift_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(chairlift_dnnl INTERFACE ${DNNL_LIBRARY})

find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
find_library(HWY_LIBRARY hwy REQUIRED)
add_library(chairlift_hwy INTERFACE)
target_include_directories(chairlift_hwy SYSTEM INTERFACE ${HWY_INCLUDE_DIR})
target_link_libraries(chairlift_hwy INTERFACE ${HWY_LIBRARY})

find_path(RE2_INCLUDE_DIR re2/re2.h REQUIRED)
find_library(RE2_LIBRARY re2 REQUIRED)
add_library(chairlift_re2 INTERFACE)
target_include_directories(chairlift_re2 SYSTEM INTERFACE ${RE2_INCLUDE_DIR})
target_link_libraries(chairlift_re2 INTERFACE ${RE2_LIBRARY})

# The ONNX protobuf messages alone; none of the ONNX project's own checker or inference is linked.
find_path(ONNX_INCLUDE_DIR onnx/onnx_pb.h REQUIRED)
find_library(ONNX_PROTO_LIBRARY onnx_proto REQUIRED)
add_library(chairlift_onnx_proto INTERFACE)
target_include_directories(chairlift_onnx_proto SYSTEM INTERFACE ${ONNX_INCLUDE_DIR})
target_compile_definitions(chairlift_onnx_proto INTERFACE ONNX_NAMESPACE=onnx ONNX_ML=1)
target_link_libraries(chairlift_onnx_proto INTERFACE ${ONNX_PROTO_LIBRARY} protobuf::libprotobuf)

if(CHAIRLIFT_TESTS)
  find_package(GTest REQUIRED)
endif()
