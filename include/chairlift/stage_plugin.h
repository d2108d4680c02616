// Batching policies and exits of a user's own for a model in stages, out of a shared library in the
// model's folder that its model.yaml names (docs/concepts/stages.md):
//
//   stage_plugin: {library: libmine.so, options: {rows: "8"}}
//
// It is compiled against this header, links to nothing (the program that loads it has the symbols),
// and says once, outside of all namespaces:
//
//   CHAIRLIFT_STAGE_PLUGIN(.make_policy = MakeMine)
//
// It must be built with the compiler's standard library and the Abseil that the server was built
// with. It is never unloaded.
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
  // Raised when anything changes in stage_policy.h, ExitPredicate or this.
  static constexpr uint32_t kAbi = 1;

  struct Model {
    std::span<const std::string> stages;                // their names
    const std::map<std::string, std::string>& options;  // of the model.yaml
  };

  uint32_t abi = kAbi;
  uint32_t tensor_bytes = sizeof(Tensor);
  // Each is called when the model is loaded; an error refuses it. Null: the plugin has none.
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
