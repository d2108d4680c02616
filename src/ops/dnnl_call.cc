#include "ops/dnnl_call.h"

#include "device/cpu/dnnl.h"

namespace chairlift {

struct DnnlCall::Slot {
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
  std::vector<std::pair<size_t, const void*>> variable;  // index, data it points to now
};

DnnlCall::DnnlCall(const dnnl::primitive& primitive, std::vector<Argument> arguments)
    : primitive_(primitive), arguments_(std::move(arguments)) {}

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
  return CatchDnnl("oneDNN", [&] { return Execute(worker, data); });
}

Status DnnlCall::Execute(int worker, std::span<const void* const> data) const {
  // Only this worker's thread writes its slot.
  Slot* slot = slots_[worker].load(std::memory_order_acquire);
  const dnnl::stream& stream = DnnlThreadStream();
  if (slot == nullptr) {
    slot = MakeSlot().release();
    slots_[worker].store(slot, std::memory_order_release);
  }
  for (size_t i = 0; i < slot->variable.size(); ++i) {
    auto& [index, current] = slot->variable[i];
    if (current == data[i]) continue;
    dnnl_memory_set_data_handle_v2(slot->arguments[index].memory, const_cast<void*>(data[i]),
                                   stream.get());
    current = data[i];
  }
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), stream.get(),
                             static_cast<int>(slot->arguments.size()), slot->arguments.data());
  if (status == dnnl_out_of_memory) return OutOfMemory();
  if (status != dnnl_success) {
    return Internal("oneDNN failed with status {}", static_cast<int>(status));
  }
  return absl::OkStatus();
}

}  // namespace chairlift
