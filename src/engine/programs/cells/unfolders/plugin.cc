// unfold: plugin. A user's own unfold function, from a shared library in the model's folder.
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/unfolders/unfolders.h"
#include "engine/programs/user_plugin.h"

namespace chairlift {
namespace {

class GuardedUnfolder final : public Unfolder {
 public:
  explicit GuardedUnfolder(const UnfolderFactory& factory) : factory_(factory) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    return GuardUserCode([&]() -> Status {
      users_ = factory_();
      if (users_ == nullptr) return Internal("the plugin made no unfolder");
      return users_->Unfold(inputs, graph);
    });
  }
  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    return GuardUserCode([&] { return users_->Ran(node, graph); });
  }

 private:
  const UnfolderFactory& factory_;
  std::unique_ptr<Unfolder> users_;
};

std::vector<UnfoldPlugin::Port> Described(std::span<const Cell::Port> ports) {
  std::vector<UnfoldPlugin::Port> described;
  for (const Cell::Port& port : ports) {
    UnfoldPlugin::Port& added = described.emplace_back();
    added.name = port.name;
    added.dtype = port.dtype;
    if (!port.row.has_rank()) continue;
    for (const Dim& dim : port.row.dims()) added.row.push_back(dim.known() ? dim.value() : -1);
  }
  return described;
}

}  // namespace

StatusOr<Unfolding> LoadPlugin(const PluginUnfold& manifest, const std::filesystem::path& folder,
                               std::span<const std::unique_ptr<Cell>> cells,
                               const MakeUnfolders& own) {
  MakeUnfolders make = own;
  if (make == nullptr) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::filesystem::path file,
                               FileInside(folder, manifest.library));
    const StatusOr<const UnfoldPlugin*> plugin =
        OpenUserPlugin<UnfoldPlugin>(file, "chairlift_unfold_plugin", "CHAIRLIFT_UNFOLD_PLUGIN");
    if (!plugin.ok()) return Annotate(plugin.status(), manifest.library);
    if ((*plugin)->make == nullptr) {
      return InvalidArgument("{}: its CHAIRLIFT_UNFOLD_PLUGIN has no function that makes unfolders",
                             manifest.library);
    }
    make = (*plugin)->make;
  }
  std::vector<std::string> names;
  std::vector<UnfoldPlugin::CellPorts> ports;
  for (const auto& cell : cells) {
    names.push_back(cell->name());
    ports.push_back({.inputs = Described(cell->inputs()), .outputs = Described(cell->outputs())});
  }
  std::vector<std::string> outputs;
  for (const SymbolicSpec& output : manifest.outputs) outputs.push_back(output.name);
  StatusOr<UnfolderFactory> made = GuardUserCode([&]() -> StatusOr<UnfolderFactory> {
    return make({.cells = names, .options = manifest.options, .ports = ports, .outputs = outputs});
  });
  if (!made.ok()) return Annotate(made.status(), manifest.library);
  if (*made == nullptr)
    return InvalidArgument("{}: its function returned no unfolder", manifest.library);
  Unfolding unfolding;
  unfolding.inputs = manifest.inputs;
  unfolding.outputs = manifest.outputs;
  auto factory = std::make_shared<const UnfolderFactory>(*std::move(made));
  unfolding.unfolder = [factory] { return std::make_unique<GuardedUnfolder>(*factory); };
  return unfolding;
}

}  // namespace chairlift
