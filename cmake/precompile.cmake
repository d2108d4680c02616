# chairlift_precompile(target kind): headers of others, parsed once for all targets of a kind: "layer", "test" or
# "test_unoptimized". Where CHAIRLIFT_PRECOMPILE is on, which halves the time of a build. An include that a source
# forgets is found by tools/lint.sh, which compiles each source on its own.
set(chairlift_precompiled_layer
  <algorithm> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <filesystem> <functional> <map>
  <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <fmt/format.h> <absl/container/flat_hash_map.h> <absl/container/inlined_vector.h> <absl/functional/function_ref.h>
  <absl/status/status.h> <absl/status/statusor.h>)
set(chairlift_precompiled_test ${chairlift_precompiled_layer} <random> <gmock/gmock.h> <gtest/gtest.h>)
set(chairlift_precompiled_test_unoptimized ${chairlift_precompiled_test})

function(chairlift_precompile target kind)
  if(NOT CHAIRLIFT_PRECOMPILE)
    return()
  endif()
  get_property(first GLOBAL PROPERTY chairlift_precompiled_by_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${chairlift_precompiled_${kind}})
    set_property(GLOBAL PROPERTY chairlift_precompiled_by_${kind} ${target})
  endif()
endfunction()
