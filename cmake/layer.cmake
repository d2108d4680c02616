# chairlift_unity(TARGET SOURCES ...): where CHAIRLIFT_UNITY is on, sources of one folder are compiled together, up to
# eight at a time: what they include and instantiate is compiled once, which halves the time. Names in unnamed
# namespaces must differ within a folder; a test that needs one that is taken stands in a namespace of its own name. The
# *_simd.cc stay alone: each is compiled once per instruction set.
function(chairlift_unity target)
  if(NOT CHAIRLIFT_UNITY)
    return()
  endif()
  list(FILTER ARGN EXCLUDE REGEX "_simd\\.cc$")
  foreach(source ${ARGN})
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    math(EXPR batch "(${count_${folder}} - 1) / 8")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${batch})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # Unnamed namespaces of a source count as a header's there; and g++ 12 inlines more, and warns of what it makes of that.
  target_compile_options(${target} PRIVATE
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-maybe-uninitialized;-Wno-stringop-overread>")
endfunction()

# chairlift_layer(NAME base DEPS ...): one static library a layer of docs/concepts/architecture.md, made of every .cc below
# the current directory. DEPS are the layers and packages it may see: arrows point down only.
function(chairlift_layer)
  cmake_parse_arguments(ARG "" "NAME" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/cuda/")  # of a library of their own (cuda.cmake)
  add_library(chairlift_${ARG_NAME} STATIC ${sources})
  if(CHAIRLIFT_FUZZERS)
    target_compile_options(chairlift_${ARG_NAME} PRIVATE -fsanitize=fuzzer-no-link)
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
  chairlift_unity(chairlift_${ARG_NAME} ${sources})
endfunction()

# chairlift_test(layer DEPS ...): one test program of every *_test.cc in tests/<layer>.
function(chairlift_test layer)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_test.cc)
  foreach(threadless ${chairlift_threadless_${layer}})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${layer}/${threadless}_test.cc)
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_executable(${layer}_test ${sources})
  target_include_directories(${layer}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${layer}_test PRIVATE ${ARG_DEPS} chairlift_compiler GTest::gmock
                                              GTest::gtest_main)
  # What tests is compiled once and run once. With AddressSanitizer -O0 halves the time of compiling, but tests that compute
  # what they compare with took longer to run than that saved.
  set(kind test)
  target_compile_options(${layer}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  if(CHAIRLIFT_SANITIZE MATCHES address AND layer MATCHES "^(base|cli|graph|out_of_memory|runtime|server)$")
    set(kind test_unoptimized)
    target_compile_options(${layer}_test PRIVATE -O0)
  endif()
  chairlift_precompile(${layer}_test ${kind})
  chairlift_unity(${layer}_test ${sources})
  set_target_properties(${layer}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${layer} COMMAND ${layer}_test)
endfunction()
