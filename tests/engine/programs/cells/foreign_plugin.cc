// Plugins that are wrong in one way each; FOREIGN says which.
#include <stdexcept>

#include "chairlift/unfold.h"

#if FOREIGN == 3  // no plugin at all
extern "C" int chairlift_no_plugin() { return 0; }
#else

namespace {

using chairlift::StatusOr;
using chairlift::UnfolderFactory;
using chairlift::UnfoldPlugin;

class Throwing : public chairlift::Unfolder {
  chairlift::Status Unfold(std::span<const chairlift::Tensor>,
                           chairlift::CellGraphBuilder&) override {
    throw std::runtime_error("it threw on purpose");
  }
};

StatusOr<UnfolderFactory> Make(const UnfoldPlugin::Model& model) {
  if (model.options.contains("refuse")) return absl::InvalidArgumentError("it refused on purpose");
  return [] { return std::make_unique<Throwing>(); };
}

}  // namespace

#if FOREIGN == 1    // of another interface
extern "C" const UnfoldPlugin chairlift_unfold_plugin;
const UnfoldPlugin chairlift_unfold_plugin = {.abi = UnfoldPlugin::kAbi + 1, .make = Make};
#elif FOREIGN == 2  // throws
CHAIRLIFT_UNFOLD_PLUGIN(Make)
#endif
#endif
