# Compiler: warnings as errors, sanitizers, a compiler cache where one is found.
find_program(CHAIRLIFT_CCACHE ccache)
if(CHAIRLIFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CHAIRLIFT_CCACHE})
  if(CHAIRLIFT_PRECOMPILE)
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CHAIRLIFT_CCACHE})
  endif()
endif()

add_library(chairlift_compiler INTERFACE)
target_compile_options(chairlift_compiler INTERFACE -Wall -Wextra -Werror)
if(CHAIRLIFT_SANITIZE)
  add_compile_options(-fsanitize=${CHAIRLIFT_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=${CHAIRLIFT_SANITIZE})
  find_program(CHAIRLIFT_LLD ld.lld)
  if(CHAIRLIFT_LLD)
    add_link_options(-fuse-ld=lld)  # programs of 150 MB, in a fifth of the time
  endif()
  if(CHAIRLIFT_SANITIZE MATCHES undefined)
    # A quarter of the time of a build. AddressSanitizer finds uses of null pointers and past the end of objects, too.
    add_compile_options(-fno-sanitize=null,object-size,vptr)
  endif()
  # Kernels for AVX-512 and for the baseline: no test here runs those for AVX2 on a machine that has AVX-512.
  add_compile_definitions("HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX2|HWY_AVX3_DL)")
endif()
if(CHAIRLIFT_PRECOMPILE)
  # Out of a precompiled header g++ 12 no longer knows the standard library's inlined code as a system's, and says of
  # strings that move what it keeps to itself elsewhere.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>")
endif()
if(CHAIRLIFT_PRECOMPILE AND CHAIRLIFT_CCACHE)
  # What the cache needs to know a precompiled header by its contents.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>"
                      $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()
