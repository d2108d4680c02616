// The CPU's kernels on a TestDevice.
#ifndef CHAIRLIFT_TESTS_SUPPORT_TEST_KERNELS_H_
#define CHAIRLIFT_TESTS_SUPPORT_TEST_KERNELS_H_

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/operator.h"
#include "support/test_device.h"

namespace chairlift::testing {

class TestKernels final : public DeviceKernels {
 public:
  // `missing`: operators that have none.
  explicit TestKernels(std::set<std::string> missing = {}) : missing_(std::move(missing)) {}

  StatusOr<std::unique_ptr<Kernel>> Compile(const OperatorDef& def,
                                            const CompileContext& context) const override {
    if (missing_.contains(def.name)) return std::unique_ptr<Kernel>();
    CHAIRLIFT_ASSIGN_OR_RETURN(
        std::unique_ptr<Kernel> kernel,
        CompileOperator(def, {context.attributes, context.inputs, context.outputs,
                              context.constants, context.weights, context.width, context.choice}));
    return std::make_unique<Enqueued>(std::move(kernel));
  }

 private:
  class Enqueued final : public Kernel {
   public:
    explicit Enqueued(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}

    size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
    Status Run(const KernelArgs& args) const override {
      auto& stream = static_cast<TestStream&>(args.stream);
      std::vector<const void*> inputs(args.inputs.begin(), args.inputs.end());
      std::vector<void*> outputs(args.outputs.begin(), args.outputs.end());
      std::vector<void*> scratch = {args.scratch};
      bool all_there = true;
      const auto translate = [&](auto& addresses) {
        for (auto& address : addresses) {
          if (address == nullptr) continue;
          address = stream.device().Real(address);
          all_there &= address != nullptr;
        }
      };
      translate(inputs);
      translate(outputs);
      translate(scratch);
      if (!all_there) return Internal("an operand is not in the device's memory");
      return stream.Launch([this, inputs = std::move(inputs), outputs = std::move(outputs),
                            scratch = scratch[0], worker = args.worker] {
        SoloTeam team(worker);
        return kernel_->Run({inputs, outputs, scratch, team, worker});
      });
    }

   private:
    const std::unique_ptr<Kernel> kernel_;
  };

  const std::set<std::string> missing_;
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_SUPPORT_TEST_KERNELS_H_
