// A call of an operator on a device other than the CPU.
#ifndef CHAIRLIFT_TESTS_OPS_CALL_ON_DEVICE_H_
#define CHAIRLIFT_TESTS_OPS_CALL_ON_DEVICE_H_

#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "ops/operator.h"

namespace chairlift::testing {

// A call of an operator with its memory on the device. Operators that the device has no kernel for
// are named at the end of the program.
class CallOnDevice {
 public:
  // `inputs`: the host's. kUnimplemented if there is no kernel.
  static StatusOr<std::unique_ptr<CallOnDevice>> Make(Device& device, const OperatorDef& def,
                                                      const CompileContext& context,
                                                      const std::vector<Tensor>& inputs);
  // For a call that runs on the CPU instead.
  static void NoteRefused(const Status& why);
  Status Run(Team& team);
  // On the host.
  const std::vector<Tensor>& results() const { return results_; }

 private:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Tensor> inputs_, outputs_;  // there
  Tensor scratch_;                        // there
  std::vector<Tensor> results_;
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_CALL_ON_DEVICE_H_
