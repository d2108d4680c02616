#include "engine/programs/program.h"

#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {

Program::Program(std::string_view kind, Signature signature, ServingPlan plan)
    : signature_(std::move(signature)), plan_(std::move(plan)), kind_(kind) {}

const std::string& Program::CellName(int /*cell*/) const {
  static const std::string kWhole;
  return kWhole;
}

StatusOr<ValidatedRequest> Program::Validate(const InferRequest& request) {
  return chairlift::Validate(signature_, request);
}

Status Program::SetRules(RequestRules rules) {
  CHAIRLIFT_RETURN_IF_ERROR(rules.Check(signature_));
  rules.DropProved(signature_);
  rules.PlaceSeeds(signature_);
  rules_ = std::move(rules);
  return absl::OkStatus();
}

Status Program::Explain(Status failed, const ValidatedRequest& request) const {
  if (!absl::IsInvalidArgument(failed)) return failed;
  Status bad_index =
      CatchOutOfMemory([&] { return CheckIndexBounds(signature_, index_bounds_, request); });
  return absl::IsInvalidArgument(bad_index) ? bad_index : failed;
}

}  // namespace chairlift
