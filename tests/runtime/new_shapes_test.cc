// Requests whose shapes are new all the time, on the device that CHAIRLIFT_TEST_DEVICE names: each
// makes a plan, whose kernels read tables that were uploaded a moment before. tools/test_gpu.sh
// runs it while another process keeps the GPU busy, so that a copy that nothing waits for comes
// late.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "graph/graph_builder.h"
#include "runtime/worker_memory.h"
#include "support/device_under_test.h"

namespace chairlift {
namespace new_shapes_test {

using testing::Attrs;
using testing::GraphBuilder;

Tensor Integers(std::vector<int64_t> values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

const OperatorDef& Find(const char* name) { return *OperatorRegistry::Builtin().Find("", name); }

// x, mirrored at its ends, every second row from the last on; and x's channels of four as blocks.
Graph Moves() {
  GraphBuilder b;
  const SymbolicShape any({Dim(4), Dim::Unknown(), Dim::Unknown()});
  const ValueId x = b.Input("x", DType::kFloat, any);
  const ValueId padded = b.Op(Find("Pad"), {x, b.Constant(Integers({0, 1, 1, 0, 1, 1}))},
                              Attrs({{"mode", std::string("reflect")}}));
  const ValueId rows =
      b.Op(Find("Slice"), {padded, b.Constant(Integers({-1})), b.Constant(Integers({INT64_MIN})),
                           b.Constant(Integers({1})), b.Constant(Integers({-2}))});
  const ValueId image = b.Op(Find("Unsqueeze"), {x, b.Constant(Integers({0}))});
  const ValueId blocks = b.Op(Find("DepthToSpace"), {image}, Attrs({{"blocksize", int64_t{2}}}));
  for (const ValueId id : {rows, blocks}) {
    b.value(id).dtype = DType::kFloat;
    b.Output(id);
  }
  return std::move(b).Build();
}

void ExpectMovesAsOnTheCpu(Device& device, int requests) {
  auto here = Executable::Create(Moves(), {});
  ASSERT_TRUE(here.ok()) << here.status();
  // Plans are dropped all the time, too.
  auto there = Executable::Create(Moves(), {.max_plan_bytes = 1 << 16, .device = &device});
  ASSERT_TRUE(there.ok()) << there.status();
  auto stream = device.NewStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  SoloTeam team;
  WorkerMemory on_host, on_device(**stream);
  std::mt19937 random(11);
  for (int request = 0; request < requests; ++request) {
    // Tables of some KiB, which pageable memory is staged for, and of some hundreds.
    const int64_t most = request % 8 == 0 ? 160 : 24;
    const Shape shape{4, 2 + static_cast<int64_t>(random() % static_cast<uint32_t>(most)),
                      2 + static_cast<int64_t>(random() % static_cast<uint32_t>(most))};
    Tensor x = Tensor::Allocate(DType::kFloat, shape);
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i + 1);
    const std::vector<Tensor> inputs = {x};
    const auto want = RunFromHost(**here, inputs, team, 0, on_host);
    const auto got = RunFromHost(**there, inputs, team, 0, on_device);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    for (size_t o = 0; o < want->size(); ++o) {
      ASSERT_EQ((*got)[o].shape(), (*want)[o].shape());
      for (int64_t i = 0; i < (*want)[o].size(); ++i) {
        ASSERT_EQ((*got)[o].data<float>()[i], (*want)[o].data<float>()[i])
            << "request " << request << ", " << shape.ToString() << ", output " << o;
      }
    }
  }
}

TEST(NewShapesTest, EveryPlanFindsItsTables) {
  Device* const device = testing::DeviceUnderTest();
  ExpectMovesAsOnTheCpu(device == nullptr ? CpuDevice() : *device, device == nullptr ? 20 : 600);
}

}  // namespace new_shapes_test
}  // namespace chairlift
