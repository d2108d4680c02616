// One task's rows, found and run.
#include "engine/programs/cells/cell_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/cpu/team.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using testing::kFloat;
using testing::ModelBuilder;

// All rows of the input through cell 0, all at once.
class AllAtOnce final : public Unfolder {
 public:
  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const Shape& shape = inputs[0].shape();
    Shape row;
    for (int d = 1; d < shape.rank(); ++d) row.Append(shape[d]);
    const RowSource source = RowSource::OfTensor(graph.AddTensor(inputs[0]));
    graph.AddNode(0, {&source, 1}, static_cast<int>(shape[0]), {}, {&row, 1});
    return absl::OkStatus();
  }
};

std::shared_ptr<const CellProgram> Relu(const std::vector<testing::DeclaredDim>& dims) {
  ModelBuilder m(17);
  m.Input("x", kFloat, dims).Output("y", kFloat);
  m.Node("Relu", {"x"}, {"y"});
  StatusOr<ImportedModel> imported = m.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  StatusOr<std::unique_ptr<Cell>> cell = Cell::Create("relu", std::move(imported->graph), {});
  EXPECT_TRUE(cell.ok()) << cell.status();
  auto program = std::make_shared<CellProgram>();
  program->cells.push_back(*std::move(cell));
  program->unfolder = [] { return std::make_unique<AllAtOnce>(); };
  return program;
}

// A policy that pads may do so with rows whose size only the requests tell.
TEST(CellBatchTest, PadsRowsOfOpenDimensions) {
  const std::shared_ptr<const CellProgram> program = Relu({"batch", "time", 4});
  ASSERT_TRUE(program->cells[0]->open());
  constexpr int64_t kTime = 1 << 20;  // past the end of what a small buffer has around it
  Tensor x = Tensor::Allocate(DType::kFloat, {1, kTime, 4});
  std::fill_n(x.data<float>(), x.size(), 3.0f);
  CellRequest request(program);
  ASSERT_TRUE(request.Begin(std::vector<Tensor>{x}).ok());

  CellBatch batch;
  SoloTeam team;
  WorkerMemory memory;
  batch.Begin(*program->cells[0]);
  batch.Add(request, 0);
  batch.Pad(2);
  batch.Run(team, 0, memory);
  const CellBatch::Item& item = batch.items()[0];
  ASSERT_TRUE(item.status.ok()) << item.status;
  const Tensor& y = (*item.outputs)[0];
  ASSERT_EQ(y.shape(), (Shape{3, kTime, 4}));
  const auto* values = y.data<float>();
  const int64_t row = y.size() / 3;
  EXPECT_TRUE(std::all_of(values, values + row, [](float v) { return v == 3.0f; }));
  EXPECT_TRUE(std::all_of(values + row, values + y.size(), [](float v) { return v == 0.0f; }));
}

// Everybody it was meant for has been cancelled.
TEST(CellBatchTest, OfPaddingAloneNothingRuns) {
  const std::shared_ptr<const CellProgram> program = Relu({"batch", "time", 4});
  CellBatch batch;
  SoloTeam team;
  WorkerMemory memory;
  batch.Begin(*program->cells[0]);
  batch.Pad(3);
  batch.Run(team, 0, memory);
  EXPECT_TRUE(batch.items().empty());
}

}  // namespace
}  // namespace chairlift
