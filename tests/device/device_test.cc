// What every device promises, of the CPU and of the one for tests; and what asynchronous ones do.
#include "device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/devices.h"
#include "support/device_under_test.h"
#include "support/test_device.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestDevice;
using testing::TestStream;

Tensor Floats(std::initializer_list<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

StatusOr<Tensor> Download(Stream& stream, const Tensor& tensor) {
  Tensor host = Tensor::Allocate(tensor.dtype(), tensor.shape());
  EXPECT_TRUE(stream.CopyOut(host.raw(), tensor.raw(), tensor.byte_size()).ok());
  const Status status = stream.Record()->Wait();
  if (!status.ok()) return status;
  return host;
}

std::unique_ptr<Stream> NewStream(Device& device) {
  auto stream = device.NewStream();
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

// "Cpu", "Test", or "Named": the device under test.
class EveryDeviceTest : public ::testing::TestWithParam<std::string> {
 protected:
  Device& Asked() {
    if (GetParam() == "Cpu") return CpuDevice();
    return GetParam() == "Test" ? test_ : *testing::DeviceUnderTest();
  }

  TestDevice test_;
  Device& device_ = Asked();
  const std::unique_ptr<Stream> stream_ = NewStream(device_);
};

TEST_P(EveryDeviceTest, WorkRunsInOrder) {
  const auto there = stream_->Upload(Floats({1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->device(), device_.memory());
  EXPECT_EQ(there->device() == nullptr, device_.is_host());
  auto copy = stream_->Clone(*there);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_NE(copy->raw(), there->raw());
  const auto* const bytes = static_cast<const std::byte*>(there->raw());
  constexpr size_t kRow = 2 * sizeof(float);
  {
    const std::array<const std::byte*, 3> rows = {bytes + 2 * kRow, bytes, bytes + 2 * kRow};
    ASSERT_TRUE(stream_->Gather(copy->raw(), rows.data(), 3, kRow).ok());
  }  // the addresses are not needed any more
  const auto gathered = Download(*stream_, *copy);
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  EXPECT_THAT(gathered->values<float>(), ElementsAre(5, 6, 1, 2, 5, 6));
}

TEST_P(EveryDeviceTest, LastingMemoryIsAlignedAndKeepsItsContents) {
  const auto memory = device_.Allocate(10'000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->get()) % 64, 0u);
  const Tensor in = Floats({1, 2, 3});
  ASSERT_TRUE(stream_->CopyIn(memory->get(), in.raw(), in.byte_size()).ok());
  const auto out = Download(*stream_, Tensor::Wrap(DType::kFloat, Shape{3}, memory->get()));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(out->values<float>(), ElementsAre(1, 2, 3));
}

TEST_P(EveryDeviceTest, EventsCallBackOnceBeforeAndAfter) {
  const std::shared_ptr<Event> event = stream_->Record();
  std::atomic<int> called = 0;
  event->Then([&](const Status& status) { called += status.ok() ? 1 : 100; });
  EXPECT_TRUE(event->Wait().ok());
  EXPECT_TRUE(event->done());
  EXPECT_TRUE(stream_->Record()->Wait().ok());  // callbacks come before what follows
  EXPECT_EQ(called, 1);
  event->Then([&](const Status& status) { called += status.ok() ? 1 : 100; });
  EXPECT_EQ(called, 2);
}

TEST_P(EveryDeviceTest, RowsOfAnySizeAndPlaceAreGathered) {
  std::mt19937 random(1);
  for (const size_t row_bytes : {1u, 4u, 12u, 16u, 100u, 4096u, 40'000u}) {
    for (const int64_t count : {1, 2, 63, 65, 481, 1100}) {
      constexpr int64_t kRows = 37;
      Tensor rows = Tensor::Allocate(DType::kUInt8, Shape{kRows, static_cast<int64_t>(row_bytes)});
      for (int64_t i = 0; i < rows.size(); ++i) rows.data<uint8_t>()[i] = random() & 0xff;
      const auto there = stream_->Upload(rows);
      ASSERT_TRUE(there.ok()) << there.status();
      auto gathered =
          stream_->NewTensor(DType::kUInt8, Shape{count, static_cast<int64_t>(row_bytes)});
      ASSERT_TRUE(gathered.ok()) << gathered.status();
      std::vector<const std::byte*> places;
      std::vector<int64_t> from;
      for (int64_t r = 0; r < count; ++r) {
        from.push_back(static_cast<int64_t>(random() % kRows));
        places.push_back(static_cast<const std::byte*>(there->raw()) +
                         static_cast<size_t>(from.back()) * row_bytes);
      }
      ASSERT_TRUE(stream_->Gather(gathered->raw(), places.data(), count, row_bytes).ok());
      const auto got = Download(*stream_, *gathered);
      ASSERT_TRUE(got.ok()) << got.status();
      for (int64_t r = 0; r < count; ++r) {
        const auto want = rows.Rows(from[static_cast<size_t>(r)], 1);
        ASSERT_EQ(std::memcmp(got->Rows(r, 1).raw(), want.raw(), row_bytes), 0)
            << "row " << r << " of " << count << ", of " << row_bytes << " bytes";
      }
    }
  }
}

// As large as no device has it, and what comes after that.
TEST_P(EveryDeviceTest, MemoryThatIsNotThereIsRefusedAndNothingElse) {
  if (device_.is_host()) GTEST_SKIP() << "the system grants what it does not have";
  const auto too_much = stream_->NewTensor(DType::kUInt8, Shape{int64_t{1} << 42});
  EXPECT_TRUE(absl::IsResourceExhausted(too_much.status())) << too_much.status();
  EXPECT_TRUE(absl::IsResourceExhausted(device_.Allocate(size_t{1} << 42).status()));
  const auto there = stream_->Upload(Floats({4, 5}));
  ASSERT_TRUE(there.ok()) << there.status();
  const auto got = Download(*stream_, *there);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->values<float>(), ElementsAre(4, 5));
}

std::vector<std::string> NamesOfDevices() {
  std::vector<std::string> names = {"Cpu", "Test"};
  if (testing::DeviceUnderTest() != nullptr) names.emplace_back("Named");
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, EveryDeviceTest, ::testing::ValuesIn(NamesOfDevices()),
                         [](const auto& info) { return info.param; });

TEST(FindDeviceTest, OnlyKnownNamesAreDevices) {
  const auto cpu = FindDevice("cpu");
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ(*cpu, &CpuDevice());
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cudax"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(FindDevice(wrong).status())) << wrong;
  }
  const auto none = FindDevice("cuda:99");
  EXPECT_TRUE(absl::IsNotFound(none.status())) << none.status();
}

TEST(CpuDeviceTest, IsNamedByWhatItMeasuresAs) {
  EXPECT_EQ(CpuDevice().name(), "cpu");
  EXPECT_THAT(CpuDevice().Description(),
              ::testing::AnyOf(HasSubstr("amx"), HasSubstr("avx512"), HasSubstr("avx2"),
                               HasSubstr("baseline")));
  EXPECT_EQ(&CpuStream().device(), &CpuDevice());
}

// An asynchronous device.
class AsynchronousTest : public ::testing::Test {
 protected:
  TestDevice device_;
  std::unique_ptr<Stream> stream_ = NewStream(device_);

  TestStream& test_stream() { return static_cast<TestStream&>(*stream_); }
};

TEST_F(AsynchronousTest, NobodyOnTheHostReadsItsMemory) {
  const auto there = stream_->Upload(Floats({1}));
  ASSERT_TRUE(there.ok()) << there.status();
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(write(ends[1], there->raw(), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(AsynchronousTest, WorkIsEnqueuedFarAheadOfWhatRuns) {
  constexpr int kTasks = 50;
  device_.Hold();
  auto value = stream_->Upload(Floats({1}));
  ASSERT_TRUE(value.ok()) << value.status();
  std::vector<std::shared_ptr<Event>> events;
  std::vector<int> order;
  for (int task = 0; task < kTasks; ++task) {
    float* const real = reinterpret_cast<float*>(device_.Real(value->raw()));
    ASSERT_TRUE(test_stream()
                    .Launch([real] {
                      *real += 1;
                      return absl::OkStatus();
                    })
                    .ok());
    events.push_back(stream_->Record());
    events.back()->Then([&order, task](const Status& /*status*/) { order.push_back(task); });
  }
  for (const auto& event : events) EXPECT_FALSE(event->done());
  device_.Resume();
  const auto result = Download(*stream_, *value);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->values<float>(), ElementsAre(1 + kTasks));
  EXPECT_EQ(order.size(), static_cast<size_t>(kTasks));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(AsynchronousTest, MemoryGoesBackInTheStreamsOrder) {
  device_.Hold();
  auto copy = stream_->Upload(Floats({1, 2}));
  ASSERT_TRUE(copy.ok()) << copy.status();
  for (int i = 0; i < 5; ++i) {
    copy = stream_->Clone(*copy);  // what it was made of goes now
    ASSERT_TRUE(copy.ok()) << copy.status();
  }
  EXPECT_EQ(device_.counts().live, 6);
  device_.Resume();
  const auto result = Download(*stream_, *copy);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->values<float>(), ElementsAre(1, 2));
  EXPECT_EQ(device_.counts().live, 1);
  stream_.reset();
  copy = absl::CancelledError();  // drops it
  EXPECT_EQ(device_.counts().live, 0);
}

TEST_F(AsynchronousTest, KeepsWhatItIsGivenUntilThen) {
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = owner;
  device_.Hold();
  stream_->Keep(std::move(owner));
  const auto event = stream_->Record();
  EXPECT_FALSE(seen.expired());
  device_.Resume();
  ASSERT_TRUE(event->Wait().ok());
  EXPECT_TRUE(seen.expired());
}

TEST_F(AsynchronousTest, AnErrorFailsTheNextEventAndSkipsWhatIsBetween) {
  const auto ok = [] { return absl::OkStatus(); };
  bool ran = false;
  device_.FailWork(2);
  ASSERT_TRUE(test_stream().Launch(ok).ok());
  const auto before = stream_->Record();
  ASSERT_TRUE(test_stream().Launch(ok).ok());
  ASSERT_TRUE(test_stream()
                  .Launch([&ran] {
                    ran = true;
                    return absl::OkStatus();
                  })
                  .ok());
  const auto failed = stream_->Record();
  ASSERT_TRUE(test_stream().Launch(ok).ok());
  const auto after = stream_->Record();
  EXPECT_TRUE(before->Wait().ok());
  EXPECT_THAT(failed->Wait().message(), HasSubstr("failed at work"));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(after->Wait().ok());
}

TEST_F(AsynchronousTest, AllocationsAndLaunchesFailWhenAsked) {
  device_.FailAllocation(2);
  EXPECT_TRUE(device_.Allocate(1).ok());
  const Status none = stream_->NewTensor(DType::kFloat, Shape{3}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(none.message(), HasSubstr("device 'test' has no memory for 12 bytes"));
  EXPECT_TRUE(stream_->NewTensor(DType::kFloat, Shape{3}).ok());
  device_.FailLaunch(1);
  const auto ok = [] { return absl::OkStatus(); };
  EXPECT_FALSE(test_stream().Launch(ok).ok());
  EXPECT_TRUE(test_stream().Launch(ok).ok());
  EXPECT_EQ(device_.counts().launches, 2);
}

TEST_F(AsynchronousTest, StreamsDoNotWaitForEachOther) {
  const std::unique_ptr<Stream> other = NewStream(device_);
  std::promise<void> released;
  std::shared_future<void> release = released.get_future();
  ASSERT_TRUE(test_stream()
                  .Launch([release] {
                    release.wait();
                    return absl::OkStatus();
                  })
                  .ok());
  const auto late = stream_->Record();
  EXPECT_TRUE(other->Record()->Wait().ok());
  EXPECT_FALSE(late->done());
  released.set_value();
  EXPECT_TRUE(late->Wait().ok());
}

}  // namespace
}  // namespace chairlift
