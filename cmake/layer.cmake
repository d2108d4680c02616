# chairlift_unity(TARGET [BY_FOLDER] SOURCES ...): where CHAIRLIFT_UNITY is on, up to 32 sources are compiled together:
# what they include and instantiate is compiled once, which takes a third of the time. Names in unnamed namespaces must
# differ within a layer; with BY_FOLDER, within a folder. The *_simd.cc stay alone: each is compiled once per instruction
# set.
function(chairlift_unity target)
  if(NOT CHAIRLIFT_UNITY)
    return()
  endif()
  cmake_parse_arguments(ARG "BY_FOLDER" "" "" ${ARGN})
  list(FILTER ARG_UNPARSED_ARGUMENTS EXCLUDE REGEX "_simd\\.cc$")
  foreach(source ${ARG_UNPARSED_ARGUMENTS})
    set(group ${target})
    if(ARG_BY_FOLDER)
      get_filename_component(folder ${source} DIRECTORY)
      string(MAKE_C_IDENTIFIER "${folder}" group)
    endif()
    math(EXPR batch "0${count_${group}} / 32")
    math(EXPR count_${group} "0${count_${group}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${batch})
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
  set(by_folder "")
  if(layer MATCHES "^(graph|ops)$")  # whose tests name their cases alike
    set(by_folder BY_FOLDER)
  endif()
  chairlift_unity(${layer}_test ${by_folder} ${sources})
  set_target_properties(${layer}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${layer} COMMAND ${layer}_test)
endfunction()
