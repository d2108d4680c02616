// A plugin whose test watches it, and holds it up: y is the cell `pair` of x's first two rows.
#include <cstring>

#include "chairlift/unfold.h"

// The test's: called wherever a user's code runs.
extern "C" void ChairliftTestUnfolding(const char* where);

namespace {

using namespace chairlift;

class Watched : public Unfolder {
 public:
  explicit Watched(bool endless) : endless_(endless) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    ChairliftTestUnfolding("unfold");
    const int x = graph.AddTensor(inputs[0]);
    const RowSource sources[] = {RowSource::OfTensor(x, 0), RowSource::OfTensor(x, 1)};
    const NodeId node = graph.AddNode(0, sources);
    const int y = graph.AddBuffer(DType::kFloat, Shape{1, 4});
    graph.Deliver(node, 0, 0, 1, {.tensor = y});
    graph.SetAnswer(0, y);
    graph.Watch(node);
    return absl::OkStatus();
  }

  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    ChairliftTestUnfolding("ran");
    const RowSource sources[] = {RowSource::OfNode(node), RowSource::OfNode(node)};
    for (int i = 0; endless_ && i <= 1 << 18; ++i) graph.AddNode(0, sources);
    return absl::OkStatus();
  }

 private:
  const bool endless_;
};

StatusOr<UnfolderFactory> Make(const UnfoldPlugin::Model& model) {
  const bool endless = model.options.contains("endless");
  return [endless] { return std::make_unique<Watched>(endless); };
}

}  // namespace

CHAIRLIFT_UNFOLD_PLUGIN(Make)
