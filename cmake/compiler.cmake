# Compiler: warnings as errors, sanitizers, a compiler cache where one is found.
find_program(CHAIRLIFT_CCACHE ccache)
if(CHAIRLIFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CHAIRLIFT_CCACHE})
endif()

add_library(chairlift_compiler INTERFACE)
target_compile_options(chairlift_compiler INTERFACE -Wall -Wextra -Werror)
if(CHAIRLIFT_SANITIZE)
  add_compile_options(-fsanitize=${CHAIRLIFT_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=${CHAIRLIFT_SANITIZE})
endif()
if(CHAIRLIFT_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
