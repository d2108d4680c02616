// A user-defined unfold function: folds a sequence of any length in pairs, and the pairs in pairs,
// until one row is left. All pairs of a round share batches, also with other requests.
//
//     x0  x1  x2  x3  x4
//      \  /    \  /   |
//     [pair]  [pair]  |
//         \    /      |
//         [pair]      |
//             \      /
//              [pair] → y
//
// The cell `pair` reads left and right [batch, n] and outputs both [batch, n]; the model's input is
// x [length, n], its output y [1, n].
#include <utility>
#include <vector>

#include "chairlift/unfold.h"

namespace {

using chairlift::CellGraphBuilder;
using chairlift::NodeId;
using chairlift::RowSource;
using chairlift::Status;
using chairlift::StatusOr;
using chairlift::Tensor;
using chairlift::Unfolder;
using chairlift::UnfolderFactory;
using chairlift::UnfoldPlugin;

class Pairwise : public Unfolder {
 public:
  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const Tensor& x = inputs[0];
    const int64_t length = x.shape()[0];
    if (length < 2) return absl::InvalidArgumentError("x must have at least two rows");
    const int tensor = graph.AddTensor(x);
    std::vector<RowSource> rows;
    for (int64_t row = 0; row < length; ++row) rows.push_back(RowSource::OfTensor(tensor, row));
    NodeId last = 0;
    while (rows.size() > 1) {
      std::vector<RowSource> folded;
      for (size_t i = 0; i + 1 < rows.size(); i += 2) {
        const RowSource sources[] = {rows[i], rows[i + 1]};
        last = graph.AddNode(0, sources);
        folded.push_back(RowSource::OfNode(last));
      }
      if (rows.size() % 2 == 1) folded.push_back(rows.back());
      rows = std::move(folded);
    }
    const int answer = graph.AddBuffer(x.dtype(), {1, x.shape()[1]});
    graph.Deliver(last, 0, 0, 1, {.tensor = answer});
    graph.SetAnswer(0, answer);
    return absl::OkStatus();
  }
};

StatusOr<UnfolderFactory> MakePairwise(const UnfoldPlugin::Model& model) {
  if (model.cells.size() != 1 || model.cells[0] != "pair") {
    return absl::InvalidArgumentError("the model must have one cell, 'pair'");
  }
  return [] { return std::make_unique<Pairwise>(); };
}

}  // namespace

CHAIRLIFT_UNFOLD_PLUGIN(MakePairwise)
