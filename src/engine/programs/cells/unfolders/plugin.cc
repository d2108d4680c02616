// unfold: plugin. A user's own unfold function, out of a shared library in the model's folder.
#include <dlfcn.h>

#include <exception>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/unfolders/unfolders.h"

namespace chairlift {
namespace {

// Runs what a user wrote: an exception fails the request, or the model, and nothing else.
template <typename F>
auto Guarded(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return Internal("the plugin threw an exception: {}", error.what());
  } catch (...) {
    return Internal("the plugin threw something that is no exception");
  }
}

class GuardedUnfolder final : public Unfolder {
 public:
  explicit GuardedUnfolder(const UnfolderFactory& factory) : factory_(factory) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    return Guarded([&]() -> Status {
      users_ = factory_();
      if (users_ == nullptr) return Internal("the plugin made no unfolder");
      return users_->Unfold(inputs, graph);
    });
  }
  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    return Guarded([&] { return users_->Ran(node, graph); });
  }

 private:
  const UnfolderFactory& factory_;
  std::unique_ptr<Unfolder> users_;
};

// Why dlopen() or dlsym() failed last.
std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "no reason was given" : error;
}

StatusOr<const UnfoldPlugin*> Open(const std::filesystem::path& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return InvalidArgument("it cannot be loaded: {}", LoaderError());
  const auto* plugin = static_cast<const UnfoldPlugin*>(dlsym(library, "chairlift_unfold_plugin"));
  if (plugin == nullptr) {
    return InvalidArgument("it is no unfold plugin (CHAIRLIFT_UNFOLD_PLUGIN): {}", LoaderError());
  }
  if (plugin->abi != UnfoldPlugin::kAbi) {
    return InvalidArgument("it was built for version {} of the interface; this is version {}",
                           plugin->abi, UnfoldPlugin::kAbi);
  }
  if (plugin->tensor_bytes != sizeof(Tensor)) {
    return InvalidArgument(
        "it was built with other libraries: a tensor has {} bytes there, {} here",
        plugin->tensor_bytes, sizeof(Tensor));
  }
  if (plugin->make == nullptr)
    return InvalidArgument("its CHAIRLIFT_UNFOLD_PLUGIN has no function that makes unfolders");
  return plugin;
}

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
    const StatusOr<const UnfoldPlugin*> plugin = Open(file);
    if (!plugin.ok()) return Annotate(plugin.status(), manifest.library);
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
  StatusOr<UnfolderFactory> made = Guarded([&]() -> StatusOr<UnfolderFactory> {
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
