# chairlift_layer(NAME base DEPS ...): one static library a layer of docs/architecture.md, made of every .cc below
# the current directory. DEPS are the layers and packages it may see: arrows point down only.
function(chairlift_layer)
  cmake_parse_arguments(ARG "" "NAME" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  add_library(chairlift_${ARG_NAME} STATIC ${sources})
  if(CHAIRLIFT_FUZZERS)
    # Force-inlined vector code under UBSan, coverage or stack poisoning takes minutes and gigabytes
    # a file: these keep AddressSanitizer's heap checks, which find a kernel's stray access.
    set(vector_sources ${sources})
    list(FILTER vector_sources INCLUDE REGEX "_simd\\.cc$")
    set_source_files_properties(${vector_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
      "-fno-sanitize=undefined;-mllvm;-asan-stack=0;-fno-sanitize-coverage=inline-8bit-counters,pc-table,trace-cmp,indirect-calls")
  endif()
  target_include_directories(chairlift_${ARG_NAME} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(chairlift_${ARG_NAME} PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:chairlift_compiler>)
  chairlift_precompile(chairlift_${ARG_NAME} layer)
endfunction()

# chairlift_test(layer DEPS ...): one test program of every *_test.cc in tests/<layer>.
function(chairlift_test layer)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${layer}_test ${sources})
  target_include_directories(${layer}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${layer}_test PRIVATE ${ARG_DEPS} chairlift_compiler GTest::gmock
                                              GTest::gtest_main)
  # What tests is compiled once and run once.
  target_compile_options(${layer}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  chairlift_precompile(${layer}_test test)
  set_target_properties(${layer}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${layer} COMMAND ${layer}_test)
endfunction()
