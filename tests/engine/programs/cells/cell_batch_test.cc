// One task's rows, found and run.
#include "engine/programs/cells/cell_batch.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "device/cpu/team.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
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
  batch.Begin(*program->cells[0], {}, 0, 1);
  batch.Add(request, 1, 0, 1);
  batch.Pad(2);
  batch.Run(team, 0, memory);
  const CellBatch::Item& item = batch.items()[0];
  ASSERT_TRUE(item.status.ok()) << item.status;
  const Tensor& y = (*item.OutputsOf(0))[0];
  ASSERT_EQ(y.shape(), (Shape{3, kTime, 4}));
  const auto* values = y.data<float>();
  const int64_t row = y.size() / 3;
  EXPECT_TRUE(std::all_of(values, values + row, [](float v) { return v == 3.0f; }));
  EXPECT_TRUE(std::all_of(values + row, values + y.size(), [](float v) { return v == 0.0f; }));
}

// Each step reads an index from a row [length], adds the table's entry for it, and delivers the
// sum.
class Sums final : public Unfolder {
 public:
  explicit Sums(bool read_later) : read_later_(read_later) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const auto length = static_cast<int>(inputs[0].shape()[0]);
    const int x = graph.AddTensor(inputs[0]);
    RowSource sum = RowSource::OfTensor(graph.AddTensor(Tensor::Of<float>({1, 1}, {0})));
    const int sums = graph.AddBuffer(DType::kFloat, {length, 1});
    for (int t = 0; t < length; ++t) {
      const RowSource sources[] = {RowSource::OfTensor(x, t), sum};
      const NodeId node = graph.AddNode(0, sources);
      graph.Deliver(node, 0, 0, 1, {.tensor = sums, .offset = t * int64_t{4}});
      sum = RowSource::OfNode(node);
    }
    if (read_later_) {
      const RowSource sources[] = {RowSource::OfTensor(x), RowSource::OfNode(1)};
      graph.AddNode(0, sources);
    }
    graph.SetAnswer(0, sums);
    return absl::OkStatus();
  }

 private:
  const bool read_later_;
};

std::shared_ptr<const CellProgram> SumProgram(bool read_later) {
  ModelBuilder m(17);
  m.Input("x", testing::kInt64, {"batch"}).Input("sum", kFloat, {"batch", 1});
  m.Output("next", kFloat);
  m.Floats("table", {3, 1}, {1, 10, 100});
  m.Node("Gather", {"table", "x"}, {"entry"});
  m.Node("Add", {"entry", "sum"}, {"next"});
  StatusOr<ImportedModel> imported = m.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  StatusOr<std::unique_ptr<Cell>> cell = Cell::Create("sum", std::move(imported->graph), {});
  EXPECT_TRUE(cell.ok()) << cell.status();
  auto program = std::make_shared<CellProgram>();
  program->cells.push_back(*std::move(cell));
  program->unfolder = [read_later] { return std::make_unique<Sums>(read_later); };
  program->feeds = {{-1, 0}};
  program->outputs = {"sums"};
  return program;
}

// Requests in one task, all steps of each; in order of their lengths.
class SumTask {
 public:
  SumTask(const std::vector<std::vector<int64_t>>& rows, bool read_later)
      : program_(SumProgram(read_later)) {
    for (const std::vector<int64_t>& row : rows) {
      const auto length = static_cast<int64_t>(row.size());
      Tensor x = Tensor::Allocate(DType::kInt64, {length});
      std::copy(row.begin(), row.end(), x.data<int64_t>());
      requests_.push_back(std::make_unique<CellRequest>(program_));
      EXPECT_TRUE(requests_.back()->Begin(std::vector<Tensor>{x}).ok());
    }
    const auto lasting =
        std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.size() > 1; });
    batch_.Begin(*program_->cells[0], program_->FeedsOf(0), static_cast<int32_t>(lasting),
                 static_cast<int32_t>(rows[0].size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      batch_.Add(*requests_[i], i + 1, 0, static_cast<int32_t>(rows[i].size()));
    }
    batch_.Run(team_, 0, memory_);
  }

  const CellBatch::Item& item(size_t i) { return batch_.items()[i]; }
  float Left(size_t i, int32_t step) {
    return (*item(i).OutputsOf(step))[0].data<float>()[item(i).first_row];
  }
  // What has been delivered.
  std::vector<float> Sums(size_t i) const {
    const Tensor& sums = requests_[i]->answers()[0];
    return {sums.data<float>(), sums.data<float>() + sums.size()};
  }

 private:
  const std::shared_ptr<const CellProgram> program_;
  std::vector<std::unique_ptr<CellRequest>> requests_;
  CellBatch batch_;
  SoloTeam team_;
  WorkerMemory memory_;
};

TEST(CellBatchTest, RowsDropOutOfTheEndAsTheirStepsDo) {
  SumTask task({{0, 1, 2, 0, 1}, {2, 2, 2, 2, 2}, {1, 0, 0}, {0, 0}, {2}}, false);
  EXPECT_THAT(task.Sums(0), ElementsAre(1, 11, 111, 112, 122));
  EXPECT_THAT(task.Sums(1), ElementsAre(100, 200, 300, 400, 500));
  EXPECT_THAT(task.Sums(2), ElementsAre(10, 11, 12));
  EXPECT_THAT(task.Sums(3), ElementsAre(1, 2));
  EXPECT_THAT(task.Sums(4), ElementsAre(100));
  const float last[] = {122, 500, 12, 2, 100};
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(task.item(i).status.ok()) << task.item(i).status;
    EXPECT_EQ(task.Left(i, task.item(i).steps - 1), last[i]);
    if (task.item(i).steps > 1) {
      EXPECT_EQ(task.item(i).OutputsOf(0), nullptr);
    }
  }
}

TEST(CellBatchTest, WhatOthersReadOfAStepStays) {
  SumTask task({{0, 1, 2}, {2, 2}}, true);
  EXPECT_EQ(task.Left(0, 0), 1);
  EXPECT_EQ(task.Left(0, 1), 11);
  EXPECT_EQ(task.Left(0, 2), 111);
  EXPECT_EQ(task.Left(1, 0), 100);
  EXPECT_EQ(task.Left(1, 1), 200);
}

// The third step of one cannot be computed: the others do not fail for it.
TEST(CellBatchTest, RequestsFailApartInAnyStep) {
  SumTask task({{0, 1, 2, 0}, {0, 0, 7, 0}, {1, 0, 0}, {0}}, false);
  EXPECT_FALSE(task.item(1).status.ok());
  for (const size_t i : {0, 2, 3}) EXPECT_TRUE(task.item(i).status.ok()) << task.item(i).status;
  EXPECT_THAT(task.Sums(0), ElementsAre(1, 11, 111, 112));
  EXPECT_THAT(task.Sums(2), ElementsAre(10, 11, 12));
  EXPECT_THAT(task.Sums(3), ElementsAre(1));
  EXPECT_EQ(task.Left(0, 3), 112);
  EXPECT_EQ(task.Left(2, 2), 12);
}

// Two that go on, one of them after the other has left and a third has joined.
TEST(CellBatchTest, RowsThatGoOnAreFoundWithoutAskingTheirRequests) {
  const std::shared_ptr<const CellProgram> program = SumProgram(false);
  const auto request_of = [&](const std::vector<int64_t>& row) {
    auto request = std::make_unique<CellRequest>(program);
    const Tensor x =
        Tensor::Of<int64_t>({static_cast<int64_t>(row.size())}, std::span<const int64_t>(row));
    EXPECT_TRUE(request->Begin(std::vector<Tensor>{x}).ok());
    return request;
  };
  struct Row {
    CellRequest& request;
    uint64_t number;
    NodeId node;
    int32_t steps;
    bool known;  // the batch finds it
  };
  CellBatch batch;
  SoloTeam team;
  WorkerMemory memory;
  const auto run = [&](const std::vector<Row>& rows, int32_t lasting) {
    batch.Begin(*program->cells[0], program->FeedsOf(0), lasting, rows[0].steps);
    for (const Row& row : rows) {
      const bool known = batch.AddNext(row.request, row.number, row.node, row.steps);
      EXPECT_EQ(known, row.known) << row.number;
      if (!known) batch.Add(row.request, row.number, row.node, row.steps);
    }
    batch.Run(team, 0, memory);
    for (size_t i = 0; i < rows.size(); ++i) {
      const CellBatch::Item& item = batch.items()[i];
      EXPECT_TRUE(
          rows[i].request.Complete(item.node, item.steps, item.outputs, item.first_row).ok());
    }
  };
  const auto a = request_of({0, 1, 2, 0, 1, 2}), b = request_of({2, 2, 0}),
             c = request_of({1, 0, 2, 2});
  run({{*a, 1, 0, 1, false}, {*b, 2, 0, 1, false}}, 0);
  run({{*a, 1, 1, 1, true}, {*b, 2, 1, 1, true}}, 0);
  run({{*a, 1, 2, 2, true}, {*c, 3, 0, 2, false}, {*b, 2, 2, 1, false}}, 2);  // b's last is unlike
  run({{*c, 3, 2, 1, true}, {*a, 1, 4, 1, true}}, 0);
  run({{*c, 3, 3, 1, false}}, 0);
  run({{*a, 1, 5, 1, false}}, 0);  // its last, and not of the batch before
  const auto sums_of = [](const CellRequest& request) {
    const Tensor& sums = request.answers()[0];
    return std::vector<float>(sums.data<float>(), sums.data<float>() + sums.size());
  };
  EXPECT_THAT(sums_of(*a), ElementsAre(1, 11, 111, 112, 122, 222));
  EXPECT_THAT(sums_of(*b), ElementsAre(100, 200, 201));
  EXPECT_THAT(sums_of(*c), ElementsAre(10, 11, 111, 211));
}

// Everybody it was meant for has been cancelled.
TEST(CellBatchTest, OfPaddingAloneNothingRuns) {
  const std::shared_ptr<const CellProgram> program = Relu({"batch", "time", 4});
  CellBatch batch;
  SoloTeam team;
  WorkerMemory memory;
  batch.Begin(*program->cells[0], {}, 0, 1);
  batch.Pad(3);
  batch.Run(team, 0, memory);
  EXPECT_TRUE(batch.items().empty());
}

}  // namespace
}  // namespace chairlift
