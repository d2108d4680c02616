#include "support/test_device.h"

#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base/status.h"

namespace chairlift::testing {
namespace {

constexpr size_t kAddresses = size_t{8} << 30;
constexpr size_t kPage = 4096;
constexpr size_t kReadablePastEnd = 64;

size_t Pages(size_t bytes) { return (bytes + kReadablePastEnd + kPage - 1) / kPage * kPage; }

std::byte* Map(size_t bytes) {
  void* const place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                           /*fd=*/-1, /*offset=*/0);
  return place == MAP_FAILED ? nullptr : static_cast<std::byte*>(place);
}

}  // namespace

TestDevice::TestDevice(const DeviceKernels* kernels)
    : Device("test", /*is_host=*/false, kernels),
      addresses_(Map(kAddresses)),
      real_(Map(kAddresses)) {}

TestDevice::~TestDevice() {
  munmap(addresses_, kAddresses);
  munmap(real_, kAddresses);
}

void TestDevice::Hold() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
}

void TestDevice::Resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = false;
  resumed_.notify_all();
}

std::byte* TestDevice::Real(const void* address) const {
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(address) - addresses_);
  return offset < kAddresses ? real_ + offset : nullptr;
}

// What precedes an allocation's bytes, a page, holds how many there are.
StatusOr<std::byte*> TestDevice::Take(size_t bytes) {
  ++counts_.allocations;
  const size_t size = kPage + Pages(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--allocations_left_ == 0 || size > kAddresses - taken_) {
    return ResourceExhausted("device '{}' has no memory for {} bytes", name(), bytes);
  }
  std::byte* const place = real_ + taken_;
  if (mprotect(place, size, PROT_READ | PROT_WRITE) != 0) return Internal("mprotect failed");
  std::memcpy(place, &size, sizeof(size));
  std::memset(place + kPage, 0xff, bytes);  // no numbers
  ++counts_.live;
  std::byte* const address = addresses_ + taken_ + kPage;
  taken_ += size + kPage;
  return address;
}

void TestDevice::Free(void* address) {
  --counts_.live;
  std::byte* const place = Real(address) - kPage;
  size_t size = 0;
  std::memcpy(&size, place, sizeof(size));
  madvise(place, size, MADV_DONTNEED);
  mprotect(place, size, PROT_NONE);
}

StatusOr<std::shared_ptr<void>> TestDevice::Allocate(size_t bytes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::byte* const address, Take(bytes));
  return std::shared_ptr<void>(address, [this](void* p) { Free(p); });
}

StatusOr<std::unique_ptr<Stream>> TestDevice::NewStream() {
  return std::make_unique<TestStream>(*this);
}

struct TestStream::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> work;
  bool ending = false;
  bool ended = false;
  Status failed;  // since the last event; the thread's own

  // False, and `next` untouched, once the stream has ended.
  bool Add(Work& next) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (ended) return false;
    work.push_back(std::move(next));
    changed.notify_one();
    return true;
  }
  // In order, until the stream has ended.
  void Main(TestDevice& device) {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ending || !work.empty(); });
      if (work.empty()) break;
      Work next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      {
        std::unique_lock<std::mutex> held(device.mutex_);
        device.resumed_.wait(held, [&] { return !device.held_; });
      }
      next();
      next = nullptr;
      lock.lock();
    }
    ended = true;
  }
};

TestStream::TestStream(TestDevice& device)
    : Stream(device),
      device_(device),
      queue_(std::make_shared<Queue>()),
      thread_([this] { queue_->Main(device_); }) {}

TestStream::~TestStream() {
  {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->ending = true;
    queue_->changed.notify_one();
  }
  thread_.join();
}

StatusOr<Tensor> TestStream::NewTensor(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.NumElements()) * DTypeSize(dtype);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::byte* const address, device_.Take(bytes));
  const auto free = [queue = queue_, &device = device_](void* p) {
    Work free_there = [p, &device] { device.Free(p); };
    if (!queue->Add(free_there)) device.Free(p);
  };
  return Tensor::Wrap(dtype, shape, address, std::shared_ptr<void>(address, free), &device_);
}

void TestStream::Compute(Computation computation) {
  Work work = [queue = queue_.get(), computation = std::move(computation)]() mutable {
    if (queue->failed.ok()) queue->failed = computation();
  };
  queue_->Add(work);
}

Status TestStream::CopyIn(void* to, const void* host, size_t bytes) {
  ++device_.counts_.copies_in;
  Compute([to = device_.Real(to), host, bytes] {
    if (bytes > 0) std::memcpy(to, host, bytes);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

Status TestStream::CopyOut(void* host, const void* from, size_t bytes) {
  ++device_.counts_.copies_out;
  Compute([host, from = device_.Real(from), bytes] {
    if (bytes > 0) std::memcpy(host, from, bytes);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

Status TestStream::Gather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes) {
  ++device_.counts_.gathers;
  std::vector<const std::byte*> real;
  for (int64_t r = 0; r < count; ++r) {
    real.push_back(device_.Real(rows[r]));
    if (real.back() == nullptr) return Internal("a row is not in the device's memory");
  }
  Compute([to = device_.Real(to), real = std::move(real), row_bytes] {
    std::byte* place = to;
    for (const std::byte* row : real) {
      if (row_bytes > 0) std::memcpy(place, row, row_bytes);
      place += row_bytes;
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

Status TestStream::CopyRows(std::span<const RowCopy> copies, size_t row_bytes) {
  ++device_.counts_.gathers;
  std::vector<RowCopy> real;
  for (const RowCopy& copy : copies) {
    real.push_back({device_.Real(copy.from), device_.Real(copy.to)});
    if (real.back().from == nullptr || real.back().to == nullptr) {
      return Internal("a row is not in the device's memory");
    }
  }
  Compute([real = std::move(real), row_bytes] {
    for (const RowCopy& copy : real) std::memcpy(copy.to, copy.from, row_bytes);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

void TestStream::Keep(std::shared_ptr<const void> owner) {
  Work let_go = [owner = std::move(owner)]() mutable { owner.reset(); };
  queue_->Add(let_go);
}

std::shared_ptr<Event> TestStream::Record() {
  auto event = std::make_shared<Event>();
  Work complete = [queue = queue_.get(), event] {
    event->Complete(std::exchange(queue->failed, absl::OkStatus()));
  };
  queue_->Add(complete);
  return event;
}

Status TestStream::Launch(Computation kernel) {
  ++device_.counts_.launches;
  if (--device_.launches_left_ == 0) {
    return Internal("device '{}' failed a launch", device_.name());
  }
  Compute([&device = device_, kernel = std::move(kernel)]() mutable -> Status {
    if (--device.work_left_ == 0) return Internal("device '{}' failed at work", device.name());
    return kernel();
  });
  return absl::OkStatus();
}

}  // namespace chairlift::testing
