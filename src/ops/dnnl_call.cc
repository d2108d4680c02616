#include "ops/dnnl_call.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "device/cpu/dnnl.h"
#include "ops/kernel_memory.h"

namespace chairlift {
namespace {

// Heap bytes per primitive, whatever it computes (16 to 22 KiB measured with oneDNN 2.6).
constexpr int64_t kPrimitiveHeap = 20 << 10;
// The same per memory object.
constexpr int64_t kMemoryHeap = 900;

// Pages that this thread touched first.
int64_t PagesTouched() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_minflt : 0;
}

}  // namespace

// oneDNN does not report the size of its code. It writes code to pages that nothing else uses, and
// this thread touches each of them first.
MakingDnnlPrimitive::MakingDnnlPrimitive() {
  ExpectMemoryForDnnl();
  faults_ = PagesTouched();
}

MakingDnnlPrimitive::~MakingDnnlPrimitive() {
  static const int64_t kPage = sysconf(_SC_PAGESIZE);
  KernelMemory::Add((PagesTouched() - faults_) * kPage + kPrimitiveHeap);
}

struct DnnlCall::Slot {
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
  std::vector<std::pair<size_t, const void*>> variable;  // index, data it points to now
};

DnnlCall::DnnlCall(const dnnl::primitive& primitive, std::vector<Argument> arguments)
    : primitive_(primitive), arguments_(std::move(arguments)) {
  static const auto kThreads = static_cast<int64_t>(std::thread::hardware_concurrency());
  const auto count = static_cast<int64_t>(arguments_.size());
  KernelMemory::Add(static_cast<int64_t>(sizeof(DnnlCall)) +
                    count * (static_cast<int64_t>(sizeof(Argument)) +
                             std::clamp<int64_t>(kThreads, 1, kSlots) * kMemoryHeap));
}

DnnlCall::~DnnlCall() {
  for (auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

std::unique_ptr<DnnlCall::Slot> DnnlCall::MakeSlot() const {
  auto slot = std::make_unique<Slot>();
  for (const Argument& argument : arguments_) {
    slot->memories.emplace_back(argument.desc, DnnlEngine(),
                                argument.fixed != nullptr ? argument.fixed : DNNL_MEMORY_NONE);
    slot->arguments.push_back({argument.id, slot->memories.back().get()});
    if (argument.fixed == nullptr) slot->variable.emplace_back(slot->memories.size() - 1, nullptr);
  }
  return slot;
}

Status DnnlCall::Run(int worker, std::span<const void* const> data) const {
  return CatchDnnl("oneDNN", [&]() -> Status {
    std::unique_ptr<Slot> slot;
    for (int i = 0; i < kSlots && slot == nullptr; ++i) {
      slot.reset(slots_[static_cast<size_t>((worker + i) % kSlots)].exchange(nullptr));
    }
    if (slot == nullptr) slot = MakeSlot();
    CHAIRLIFT_RETURN_IF_ERROR(Execute(*slot, data));
    for (int i = 0; i < kSlots && slot != nullptr; ++i) {
      Slot* free = nullptr;
      auto& place = slots_[static_cast<size_t>((worker + i) % kSlots)];
      if (place.compare_exchange_strong(free, slot.get())) (void)slot.release();
    }
    return absl::OkStatus();
  });
}

Status DnnlCall::Execute(Slot& slot, std::span<const void* const> data) const {
  const dnnl::stream& stream = DnnlThreadStream();
  for (size_t i = 0; i < slot.variable.size(); ++i) {
    auto& [index, current] = slot.variable[i];
    if (current == data[i]) continue;
    dnnl_memory_set_data_handle_v2(slot.arguments[index].memory, const_cast<void*>(data[i]),
                                   stream.get());
    current = data[i];
  }
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), stream.get(),
                             static_cast<int>(slot.arguments.size()), slot.arguments.data());
  if (status == dnnl_out_of_memory) return OutOfMemory();
  if (status != dnnl_success) {
    return Internal("oneDNN failed with status {}", static_cast<int>(status));
  }
  return absl::OkStatus();
}

}  // namespace chairlift
