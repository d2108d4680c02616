// User-defined batching policies and exits for a model in stages. They come from a shared library
// in the model's folder that its model.yaml names (docs/concepts/stages.md):
//
//   stage_plugin: {library: libmine.so, options: {rows: "8"}}
//
// The library is compiled against this header and links to nothing: the program that loads it has
// the symbols. It contains once, outside of all namespaces:
//
//   CHAIRLIFT_STAGE_PLUGIN(.make_policy = MakeMine)
//
// Build it with the standard library and the Abseil that the server was built with. It is never
// unloaded.
#ifndef CHAIRLIFT_STAGE_PLUGIN_H_
#define CHAIRLIFT_STAGE_PLUGIN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "chairlift/engine.h"
#include "chairlift/stage_policy.h"
#include "chairlift/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

struct StagePlugin {
  // Incremented when stage_policy.h, ExitPredicate or this struct changes.
  static constexpr uint32_t kAbi = 1;

  struct Model {
    std::span<const std::string> stages;                // their names
    const std::map<std::string, std::string>& options;  // from the model.yaml
  };

  uint32_t abi = kAbi;
  uint32_t tensor_bytes = sizeof(Tensor);
  // Each is called when the model is loaded. An error refuses the model. Null: the plugin does not
  // provide it.
  StatusOr<std::unique_ptr<StagePolicy>> (*make_policy)(const Model& model) = nullptr;
  // For an exit without a threshold, by the name of its output.
  StatusOr<ExitPredicate> (*make_exit)(const Model& model, const std::string& output) = nullptr;
};

#define CHAIRLIFT_STAGE_PLUGIN(...)                    \
  extern "C" __attribute__((visibility("default")))    \
  const chairlift::StagePlugin chairlift_stage_plugin; \
  const chairlift::StagePlugin chairlift_stage_plugin = {__VA_ARGS__};

}  // namespace chairlift

#endif  // CHAIRLIFT_STAGE_PLUGIN_H_
