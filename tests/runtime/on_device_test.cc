// Models and cells on a device other than the CPU: what they answer, what is copied, how they fail,
// and how far ahead they are enqueued.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/test_models.h"
#include "runtime/cell.h"
#include "runtime/sliced_models.h"
#include "runtime/test_operators.h"
#include "support/test_device.h"
#include "support/test_kernels.h"

namespace chairlift {
namespace {

using testing::ExpectClose;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::ModelMaker;
using testing::TestDevice;
using testing::TestKernels;
using Tensors = std::vector<Tensor>;

Graph Imported(StatusOr<ImportedModel> model) {
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(model->graph);
}

Graph Encoder(const std::string& name) {
  return Imported(ImportOnnxFile(std::filesystem::path(CHAIRLIFT_ENCODERS) / (name + ".onnx")));
}

// y and the last state of an LSTM in both directions, with a layer after it.
Graph Recurrent() {
  ModelMaker m;
  const ValueId x =
      m.Input("x", DType::kFloat, testing::Dims({testing::T(), testing::B(), testing::kFeatures}));
  ModelMaker::Options options;
  options.direction = "bidirectional";
  const auto lstm = m.Recurrent(x, testing::kFeatures, std::move(options));
  m.Output(m.Op("Tanh", {lstm[0]}));
  m.Output(lstm[1]);
  return std::move(m).Done();
}

// An LSTM in one direction.
Graph Forward() {
  ModelMaker m;
  const ValueId x =
      m.Input("x", DType::kFloat, testing::Dims({testing::T(), testing::B(), testing::kFeatures}));
  m.Output(m.Recurrent(x, testing::kFeatures, {})[0]);
  return std::move(m).Done();
}

Tensor RandomRows(const Shape& shape, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

// Integers are 0 or 1; masks hide nothing; images are of one size.
Tensors RandomInputs(const Graph& graph, std::mt19937& random) {
  if (graph.values[graph.inputs[0]].shape.rank() == 4) return {RandomRows({2, 3, 9, 11}, random)};
  Tensors inputs = testing::RandomRequest(graph, random, 2);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.values[graph.inputs[i]].name == "attention_mask") {
      std::fill_n(inputs[i].data<int64_t>(), inputs[i].size(), 1);
    }
  }
  return inputs;
}

// What is on its way back to the host.
struct Pending {
  Tensors outputs;
  std::shared_ptr<Event> done;
};

class OnDeviceTest : public ::testing::Test {
 protected:
  OnDeviceTest() {
    auto stream = device_.NewStream();
    EXPECT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
    arena_ = std::make_unique<Arena>(*stream_);
    staging_ = std::make_unique<Arena>(*stream_);
  }
  ~OnDeviceTest() override {
    arena_.reset();
    staging_.reset();
    stream_.reset();
    EXPECT_EQ(device_.counts().live, 0);
  }

  StatusOr<std::unique_ptr<Executable>> Create(Graph graph, int64_t max_plan_bytes = 64 << 20) {
    return Executable::Create(std::move(graph),
                              {.max_plan_bytes = max_plan_bytes, .device = &device_});
  }

  StatusOr<Pending> Download(const Tensors& there, Stream& stream) {
    Pending pending;
    for (const Tensor& t : there) {
      EXPECT_EQ(t.device(), &device_);
      pending.outputs.push_back(Tensor::Allocate(t.dtype(), t.shape()));
      const Status copied =
          stream.CopyOut(pending.outputs.back().raw(), t.raw(), pending.outputs.back().byte_size());
      if (!copied.ok()) return copied;
    }
    pending.done = stream.Record();
    return pending;
  }

  // Enqueues a run from host to host.
  StatusOr<Pending> Enqueue(Executable& executable, const Tensors& inputs, Stream& stream,
                            Arena& arena, int worker = 0) {
    Tensors there;
    for (const Tensor& input : inputs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(there.emplace_back(), stream.Upload(input));
    }
    SoloTeam team(worker);
    CHAIRLIFT_ASSIGN_OR_RETURN(const Tensors outputs, executable.Run(there, team, worker, arena));
    return Download(outputs, stream);
  }
  StatusOr<Pending> Enqueue(Executable& executable, const Tensors& inputs) {
    return Enqueue(executable, inputs, *stream_, *arena_);
  }
  StatusOr<Tensors> RunThere(Executable& executable, const Tensors& inputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(Pending pending, Enqueue(executable, inputs));
    CHAIRLIFT_RETURN_IF_ERROR(pending.done->Wait());
    return std::move(pending.outputs);
  }

  static Tensors RunHere(Executable& executable, const Tensors& inputs) {
    SoloTeam team;
    Arena arena;
    auto outputs = executable.Run(inputs, team, 0, arena);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return *std::move(outputs);
  }

  static void ExpectAllClose(const Tensors& got, const Tensors& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ExpectClose(got[i], want[i]);
  }

  TestKernels kernels_;
  TestDevice device_{&kernels_};
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> staging_;
};

TEST_F(OnDeviceTest, ModelsAnswerAsOnTheCpu) {
  const std::pair<const char*, Graph> models[] = {
      {"mlp", Imported(testing::MlpModel().Import())},
      {"conv", Imported(testing::ConvModel().Import())},
      {"recurrent", Recurrent()},
      {"minilm", Encoder("minilm_hf5_torchscript_sdpa_14")},
      {"albert", Encoder("albert_hf4_torchscript_eager_11")},
      {"distilbert", Encoder("distilbert_hf5_dynamo_eager_21")},
  };
  std::mt19937 random(5);
  for (const auto& [name, graph] : models) {
    SCOPED_TRACE(name);
    auto here = Executable::Create(graph, {});
    ASSERT_TRUE(here.ok()) << here.status();
    auto there = Create(graph);
    ASSERT_TRUE(there.ok()) << there.status();
    for (int request = 0; request < 6; ++request) {
      const Tensors inputs = RandomInputs(graph, random);
      const auto outputs = RunThere(**there, inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ExpectAllClose(*outputs, RunHere(**here, inputs));
    }
  }
}

TEST_F(OnDeviceTest, InputsGoInOutputsComeOutAndNothingElse) {
  const Graph graph = Imported(testing::MlpModel().Import());
  auto model = Create(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  const Tensors inputs = {Tensor::Of<float>({2, 24}, std::vector<float>(48, 0.5f))};
  ASSERT_TRUE(RunThere(**model, inputs).ok());  // constants go there once
  const TestDevice::Counts& counts = device_.counts();
  const int in = counts.copies_in, out = counts.copies_out, launches = counts.launches,
            allocations = counts.allocations;
  constexpr int kRuns = 5;
  for (int i = 0; i < kRuns; ++i) ASSERT_TRUE(RunThere(**model, inputs).ok());
  const auto plan = (*model)->Prepare(std::vector<Shape>{{2, 24}}, 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(counts.copies_in - in, kRuns * 1);
  EXPECT_EQ(counts.copies_out - out, kRuns * 2);
  EXPECT_EQ(counts.launches - launches, kRuns * plan->steps);
  EXPECT_EQ(counts.allocations - allocations, kRuns * 3);  // inputs and outputs
}

// What only passes through is copied on the device.
TEST_F(OnDeviceTest, OutputsThatAreInputsOrConstantsAreCopies) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{2}));
  b.Output(x);
  b.Output(b.Constant(Tensor::Of<float>({1}, {7})));
  auto model = Create(std::move(b).Build());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto outputs = RunThere(**model, {Tensor::Of<float>({2}, {1, 2})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT((*outputs)[0].values<float>(), ::testing::ElementsAre(1, 2));
  EXPECT_THAT((*outputs)[1].values<float>(), ::testing::ElementsAre(7));
  EXPECT_EQ(device_.counts().gathers, 2);
}

TEST_F(OnDeviceTest, AnOperatorWithoutAKernelIsRefusedByName) {
  const TestKernels some({"Relu", "FusedGemm", "MatMul", "Gemm"});
  TestDevice device(&some);
  const Status status = Executable::Create(Imported(testing::MlpModel().Import()),
                                           {.disabled_passes = {}, .device = &device})
                            .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status), HasSubstr("has no kernel for device 'test'"));
  EXPECT_THAT(Message(status), HasSubstr("node '"));
  // The same of a cell.
  const Status of_cell = Cell::Create("mlp", Imported(testing::MlpModel().Import()),
                                      {.disabled_passes = {}, .device = &device})
                             .status();
  EXPECT_THAT(Message(of_cell), HasSubstr("cell 'mlp': node '"));
}

TEST_F(OnDeviceTest, ShapesThatDependOnDataThereAreRefused) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n")}));
  b.Output(b.Op(testing::TestPositive(), {x}));
  const Status status = Create(std::move(b).Build()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status), HasSubstr("node 'Positive0' (Positive): its shapes or branches"));
}

TEST_F(OnDeviceTest, MemoryOfAnotherDeviceIsRefused) {
  auto model = Create(Imported(testing::MlpModel().Import()));
  ASSERT_TRUE(model.ok()) << model.status();
  SoloTeam team;
  const Tensor host = Tensor::Of<float>({1, 24}, std::vector<float>(24, 0.5f));
  const Status input = (*model)->Run({&host, 1}, team, 0, *arena_).status();
  EXPECT_THAT(Message(input), HasSubstr("input 'x' is in the memory of device 'cpu'"));
  const auto there = stream_->Upload(host);
  ASSERT_TRUE(there.ok()) << there.status();
  Arena of_the_host;
  const Status arena = (*model)->Run({&*there, 1}, team, 0, of_the_host).status();
  EXPECT_THAT(Message(arena), HasSubstr("the arena is of device 'cpu', the model runs on 'test'"));
}

TEST_F(OnDeviceTest, EveryFailureIsOfItsRunAlone) {
  const Graph graph = Imported(testing::MlpModel().Import());
  auto here = Executable::Create(graph, {});
  ASSERT_TRUE(here.ok()) << here.status();
  std::mt19937 random(6);
  enum { kAllocation, kLaunch, kWork, kKinds };
  for (int kind = kAllocation; kind < kKinds; ++kind) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE(kind * 100 + n);
      arena_ = std::make_unique<Arena>(*stream_);
      auto there = Create(graph);
      ASSERT_TRUE(there.ok()) << there.status();
      const Tensors inputs = {RandomRows({3, 24}, random)};
      if (kind == kAllocation) device_.FailAllocation(n);
      if (kind == kLaunch) device_.FailLaunch(n);
      if (kind == kWork) device_.FailWork(n);
      // Two are enqueued: one of them fails.
      device_.Hold();
      const auto first = Enqueue(**there, inputs);
      const auto second = Enqueue(**there, inputs);
      device_.FailAllocation(0);
      device_.FailLaunch(0);
      device_.Resume();
      const auto fails = [](const StatusOr<Pending>& run) {
        return !run.ok() || !run->done->Wait().ok();
      };
      const bool first_fails = fails(first), second_fails = fails(second);
      EXPECT_FALSE(first_fails && second_fails);
      if (!first_fails) ExpectAllClose(first->outputs, RunHere(**here, inputs));
      if (!second_fails) ExpectAllClose(second->outputs, RunHere(**here, inputs));
      device_.FailWork(0);
      stream_->Record()->Wait().IgnoreError();
      if (first_fails && kind != kWork) {
        EXPECT_EQ(first.status().code(), kind == kAllocation ? absl::StatusCode::kResourceExhausted
                                                             : absl::StatusCode::kInternal);
      }
      if (!first_fails && !second_fails) {
        EXPECT_GT(n, 2);
        break;
      }
    }
  }
}

// More shapes than plans are kept: those that go are still to run.
TEST_F(OnDeviceTest, RunsAreEnqueuedAheadThroughOneArena) {
  constexpr int kRuns = 12;
  const Graph graph = Encoder("minilm_hf5_torchscript_sdpa_14");
  auto here = Executable::Create(graph, {});
  ASSERT_TRUE(here.ok()) << here.status();
  auto there = Create(graph, /*max_plan_bytes=*/1);
  ASSERT_TRUE(there.ok()) << there.status();
  std::mt19937 random(7);
  std::vector<Tensors> requests;
  for (int r = 0; r < kRuns; ++r) requests.push_back(RandomInputs(graph, random));
  // Another stream copies the constants of a class there while its plan is made: this one stays
  // held up alone.
  std::vector<Pending> pending;
  std::promise<void> released;
  std::shared_future<void> release = released.get_future();
  ASSERT_TRUE(static_cast<testing::TestStream&>(*stream_)
                  .Launch([release] {
                    release.wait();
                    return absl::OkStatus();
                  })
                  .ok());
  for (const Tensors& inputs : requests) {
    auto enqueued = Enqueue(**there, inputs);
    ASSERT_TRUE(enqueued.ok()) << enqueued.status();
    pending.push_back(*std::move(enqueued));
  }
  for (const Pending& run : pending) EXPECT_FALSE(run.done->done());
  released.set_value();
  for (int r = 0; r < kRuns; ++r) {
    ASSERT_TRUE(pending[r].done->Wait().ok());
    ExpectAllClose(pending[r].outputs, RunHere(**here, requests[r]));
  }
}

TEST_F(OnDeviceTest, OneModelRunsOnSeveralStreams) {
  const Graph graph = Recurrent();
  auto here = Executable::Create(graph, {});
  ASSERT_TRUE(here.ok()) << here.status();
  auto there = Create(graph);
  ASSERT_TRUE(there.ok()) << there.status();
  constexpr int kStreams = 3, kRuns = 20;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Arena>> arenas;
  for (int s = 0; s < kStreams; ++s) {
    auto stream = device_.NewStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    streams.push_back(*std::move(stream));
    arenas.push_back(std::make_unique<Arena>(*streams.back()));
  }
  std::mt19937 random(8);
  std::vector<Tensors> requests;
  std::vector<Pending> pending;
  for (int r = 0; r < kRuns; ++r) {
    requests.push_back(RandomInputs(graph, random));
    const int s = r % kStreams;
    auto enqueued = Enqueue(**there, requests.back(), *streams[s], *arenas[s], s);
    ASSERT_TRUE(enqueued.ok()) << enqueued.status();
    pending.push_back(*std::move(enqueued));
  }
  for (int r = 0; r < kRuns; ++r) {
    ASSERT_TRUE(pending[r].done->Wait().ok());
    ExpectAllClose(pending[r].outputs, RunHere(**here, requests[r]));
  }
}

// --- Cells ---------------------------------------------------------------------------------------

// h' = tanh(x W + h U).
Graph StepGraph() {
  ModelMaker m;
  const auto rows = [](int64_t size) { return testing::Dims({testing::B(), size}); };
  const ValueId x = m.Input("x", DType::kFloat, rows(testing::kFeatures));
  const ValueId h = m.Input("h", DType::kFloat, rows(testing::kSlicedHidden));
  m.Output(m.Op(
      "Tanh",
      {m.Op("Add",
            {m.Op("MatMul", {x, m.Weights({testing::kFeatures, testing::kSlicedHidden})}),
             m.Op("MatMul", {h, m.Weights({testing::kSlicedHidden, testing::kSlicedHidden})})})}));
  return std::move(m).Done();
}

class CellOnDeviceTest : public OnDeviceTest {
 protected:
  // Row `row` of each of these.
  static std::vector<const std::byte*> RowsOf(const std::vector<std::pair<Tensor, int>>& sources) {
    std::vector<const std::byte*> rows;
    for (const auto& [tensor, row] : sources) {
      rows.push_back(static_cast<const std::byte*>(tensor.Rows(row, 1).raw()));
    }
    return rows;
  }
};

// The states stay on the device from step to step, where each step finds them in another order, and
// all steps are enqueued before the first one runs.
TEST_F(CellOnDeviceTest, StepsAreEnqueuedAheadOnRowsThatStayThere) {
  constexpr int kSteps = 20, kRequests = 5;
  auto here = Cell::Create("step", StepGraph(), {});
  ASSERT_TRUE(here.ok()) << here.status();
  auto there = Cell::Create("step", StepGraph(), {.device = &device_});
  ASSERT_TRUE(there.ok()) << there.status();
  std::mt19937 random(9);
  const Tensor x = RandomRows({kRequests, testing::kFeatures}, random);
  const Tensor h = RandomRows({kRequests, testing::kSlicedHidden}, random);
  std::vector<std::vector<int>> orders;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int>& order = orders.emplace_back(kRequests);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
  }
  // All steps of all requests: the tensor that holds the last states, and the row of each.
  const auto run_all = [&](Cell& cell, const Tensor& inputs, const Tensor& states, Arena& arena,
                           Arena& staging) {
    SoloTeam team;
    std::vector<std::pair<Tensor, int>> state;
    for (int r = 0; r < kRequests; ++r) state.emplace_back(states, r);
    for (const std::vector<int>& order : orders) {
      std::vector<std::pair<Tensor, int>> x_rows, h_rows;
      for (int r : order) {
        x_rows.emplace_back(inputs, r);
        h_rows.push_back(state[r]);
      }
      const auto xs = RowsOf(x_rows), hs = RowsOf(h_rows);
      const std::vector<Cell::Rows> rows = {{Shape{testing::kFeatures}, xs.data()},
                                            {Shape{testing::kSlicedHidden}, hs.data()}};
      auto outputs = cell.Run(kRequests, rows, team, 0, arena, staging);
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      for (int i = 0; i < kRequests; ++i) state[order[i]] = {(*outputs)[0], i};
    }
    return state;
  };
  Arena arena, staging;
  const auto want = run_all(**here, x, h, arena, staging);

  auto x_there = stream_->Upload(x);
  auto h_there = stream_->Upload(h);
  ASSERT_TRUE(x_there.ok() && h_there.ok());
  (void)run_all(**there, *x_there, *h_there, *arena_,
                *staging_);  // plans are made, constants copied
  ASSERT_TRUE(stream_->Record()->Wait().ok());
  const int copies = device_.counts().copies_in + device_.counts().copies_out;
  device_.Hold();
  const auto got = run_all(**there, *x_there, *h_there, *arena_, *staging_);
  EXPECT_EQ(device_.counts().copies_in + device_.counts().copies_out, copies);
  const auto last = Download({got[0].first}, *stream_);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_FALSE(last->done->done());
  device_.Resume();
  ASSERT_TRUE(last->done->Wait().ok());
  for (int r = 0; r < kRequests; ++r) {
    ExpectClose(last->outputs[0].Rows(got[r].second, 1), want[r].first.Rows(want[r].second, 1));
  }
}

TEST_F(CellOnDeviceTest, CellsOfAnLstmAnswerAsOnTheCpu) {
  const StatusOr<SlicedModel> sliced = SliceIntoCells(Forward(), {});
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  ASSERT_GT(sliced->cells.size(), 1u);
  std::mt19937 random(10);
  constexpr int64_t kRows = 3;
  for (const SlicedCell& sliced_cell : sliced->cells) {
    SCOPED_TRACE(sliced_cell.name);
    auto here = Cell::Create(sliced_cell.name, *sliced_cell.graph, {});
    ASSERT_TRUE(here.ok()) << here.status();
    auto there = Cell::Create(sliced_cell.name, *sliced_cell.graph, {.device = &device_});
    ASSERT_TRUE(there.ok()) << there.status();
    Tensors inputs, inputs_there;
    std::vector<std::vector<const std::byte*>> places, places_there;
    std::vector<Cell::Rows> rows, rows_there;
    for (const Cell::Port& port : (*here)->inputs()) {
      ASSERT_EQ(port.dtype, DType::kFloat);
      Shape shape{kRows};
      for (const Dim& dim : port.row.dims()) shape.Append(dim.value());
      inputs.push_back(RandomRows(shape, random));
      auto uploaded = stream_->Upload(inputs.back());
      ASSERT_TRUE(uploaded.ok()) << uploaded.status();
      inputs_there.push_back(*std::move(uploaded));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {  // backwards: they have to be gathered
      const auto backwards = [](const Tensor& t) { return RowsOf({{t, 2}, {t, 1}, {t, 0}}); };
      places.push_back(backwards(inputs[i]));
      places_there.push_back(backwards(inputs_there[i]));
      Shape row = inputs[i].shape();
      row.Erase(0);
      rows.push_back({row, places.back().data()});
      rows_there.push_back({row, places_there.back().data()});
    }
    SoloTeam team;
    Arena arena, staging;
    const auto want = (*here)->Run(kRows, rows, team, 0, arena, staging);
    ASSERT_TRUE(want.ok()) << want.status();
    const auto outputs = (*there)->Run(kRows, rows_there, team, 0, *arena_, *staging_);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto got = Download(*outputs, *stream_);
    ASSERT_TRUE(got.ok() && got->done->Wait().ok());
    ExpectAllClose(got->outputs, *want);
  }
}

}  // namespace
}  // namespace chairlift
