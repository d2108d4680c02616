# Installs the library into an empty folder, builds examples/embed against it, and runs that.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/installed --component development)
run(${CMAKE_COMMAND} -S ${source}/examples/embed -B ${work}/build
    -D CMAKE_PREFIX_PATH=${work}/installed -D CMAKE_CXX_COMPILER=${compiler}
    -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Werror)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${write_model} ${work}/doubling.onnx)
run(${work}/build/embed ${work}/doubling.onnx)
if(NOT output STREQUAL "y [1,4]: 2 2 2 2\n")
  message(FATAL_ERROR "embed printed: ${output}")
endif()
foreach(type RANGE 1 16)  # onnx.TensorProto.DataType; 14 and 15 are complex numbers
  if(type EQUAL 14 OR type EQUAL 15)
    continue()
  endif()
  run(${write_model} ${work}/identity.onnx ${type})
  run(${work}/build/embed ${work}/identity.onnx)
  if(NOT output STREQUAL "y [1,2]: 1 1\n")
    message(FATAL_ERROR "embed printed for element type ${type}: ${output}")
  endif()
endforeach()
file(REMOVE_RECURSE ${work})
