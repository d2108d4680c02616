# libchairlift_cuda: device/cuda and ops/cuda, where CUDA's toolkit with cuBLAS and cuDNN is found. A library of its own,
# which the program loads when a GPU is asked for (device/devices.h): without it all else is built and works.
option(CHAIRLIFT_CUDA "Build libchairlift_cuda where CUDA's toolkit is found" ON)

set(chairlift_has_cuda OFF)
if(CHAIRLIFT_CUDA AND NOT CHAIRLIFT_SANITIZE)
  find_package(CUDAToolkit 12.0 QUIET)
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
  if(CUDAToolkit_FOUND AND CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY AND TARGET CUDA::cublasLt)
    set(chairlift_has_cuda ON)
    message(STATUS "libchairlift_cuda: built with CUDA ${CUDAToolkit_VERSION}")
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90)
    endif()
    if(CHAIRLIFT_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CHAIRLIFT_CCACHE})
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows none yet
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
  else()
    message(STATUS "libchairlift_cuda: not built, as CUDA's toolkit, cuBLAS or cuDNN was not found")
  endif()
endif()

# chairlift_cuda_library(): the target chairlift_cuda, beside the program.
function(chairlift_cuda_library)
  if(NOT chairlift_has_cuda)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.c[cu]
       ${PROJECT_SOURCE_DIR}/src/ops/cuda/*.c[cu])
  add_library(chairlift_cuda SHARED ${sources})
  set_target_properties(chairlift_cuda PROPERTIES
    CUDA_RUNTIME_LIBRARY Static LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    INSTALL_RPATH "$ORIGIN;${CUDAToolkit_LIBRARY_DIR}")
  target_include_directories(chairlift_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
  target_compile_options(chairlift_cuda PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")
  # What it has of the layers below is its own: the program has copies of them.
  target_link_options(chairlift_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
  target_link_libraries(chairlift_cuda PRIVATE chairlift_ops CUDA::cublasLt ${CUDNN_LIBRARY})
  add_dependencies(chairlift chairlift_cuda)
  # A component of its own: Debian packages do not bring it.
  install(TARGETS chairlift_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
endfunction()
