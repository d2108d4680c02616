#include "engine/programs/program.h"

#include <utility>

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

}  // namespace chairlift
