#include "ops/call_on_device.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "base/status.h"

namespace chairlift::testing {
namespace {

// What ran there and what did not, by operator.
class Coverage {
 public:
  ~Coverage() {
    std::printf("operators that ran on the device:");
    for (const auto& [name, calls] : ran_) std::printf(" %s %d", name.c_str(), calls);
    std::printf("\noperators that ran on the CPU instead:\n");
    for (const auto& [why, calls] : refused_) std::printf("  %4d %s\n", calls, why.c_str());
  }
  void Ran(const std::string& name) { ++ran_[name]; }
  void Refused(const Status& why) { ++refused_[Message(why)]; }

 private:
  std::map<std::string, int> ran_, refused_;
};

Coverage& TheCoverage() {
  static Coverage coverage;
  return coverage;
}

// Bytes that are no numbers: what a kernel forgets to write shows.
StatusOr<Tensor> Poisoned(Stream& stream, DType dtype, const Shape& shape) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor there, stream.NewTensor(dtype, shape));
  const Tensor host = Tensor::Allocate(dtype, shape);
  std::memset(const_cast<void*>(host.raw()), 0xff, host.byte_size());
  CHAIRLIFT_RETURN_IF_ERROR(stream.CopyIn(there.raw(), host.raw(), host.byte_size()));
  stream.Keep(host.owner());
  return there;
}

}  // namespace

StatusOr<std::unique_ptr<CallOnDevice>> CallOnDevice::Make(Device& device, const OperatorDef& def,
                                                           const CompileContext& context,
                                                           const std::vector<Tensor>& inputs) {
  auto made = std::make_unique<CallOnDevice>();
  auto kernel = CompileOperator(def, context);
  CHAIRLIFT_RETURN_IF_ERROR(kernel.status());
  TheCoverage().Ran(def.name);
  made->kernel_ = *std::move(kernel);
  CHAIRLIFT_ASSIGN_OR_RETURN(made->stream_, device.NewStream());
  Stream& stream = *made->stream_;
  for (const Tensor& input : inputs) {
    made->inputs_.emplace_back();
    if (!input.present()) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(made->inputs_.back(), stream.Upload(input));
  }
  for (const TensorDesc& desc : context.outputs) {
    made->outputs_.emplace_back();
    made->results_.emplace_back();
    if (!desc.present()) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(made->outputs_.back(), Poisoned(stream, desc.dtype, desc.shape));
    made->results_.back() = Tensor::Allocate(desc.dtype, desc.shape);
  }
  const auto scratch = static_cast<int64_t>(made->kernel_->scratch_bytes());
  CHAIRLIFT_ASSIGN_OR_RETURN(made->scratch_, Poisoned(stream, DType::kUInt8, Shape{scratch}));
  CHAIRLIFT_RETURN_IF_ERROR(stream.Record()->Wait());
  return made;
}

void CallOnDevice::NoteRefused(const Status& why) { TheCoverage().Refused(why); }

Status CallOnDevice::Run(Team& team) {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const Tensor& t : inputs_) inputs.push_back(t.present() ? t.raw() : nullptr);
  for (Tensor& t : outputs_) outputs.push_back(t.present() ? t.raw() : nullptr);
  CHAIRLIFT_RETURN_IF_ERROR(
      kernel_->Run({inputs, outputs, scratch_.raw(), team, /*worker=*/0, *stream_}));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!outputs_[i].present()) continue;
    CHAIRLIFT_RETURN_IF_ERROR(
        stream_->CopyOut(results_[i].raw(), outputs_[i].raw(), results_[i].byte_size()));
  }
  return stream_->Record()->Wait();
}

}  // namespace chairlift::testing
