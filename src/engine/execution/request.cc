#include "engine/execution/request.h"

#include "base/status.h"

namespace chairlift {

bool IsLate(const Request& request, TimePoint now) {
  return request.deadline && now >= *request.deadline;
}

Status LateStatus(const Request& request) {
  const char* const doing = request.start ? "ran" : "waited";
  // A step has the time that the whole request has left.
  if (request.inside || !request.timeout) {
    return DeadlineExceeded("the timeout passed while the request {}", doing);
  }
  return DeadlineExceeded("the timeout of {} passed while the request {}",
                          TimeText(*request.timeout), doing);
}

Status WithEmptyInput(const Request& request, Status failed) {
  const bool of_node = failed.message().find("node '") != std::string_view::npos;
  if (!absl::IsInvalidArgument(failed) || !of_node || request.graph == nullptr) return failed;
  const std::vector<Tensor>& inputs = request.graph->request().inputs;
  const std::vector<TensorSpec>& specs = request.model->metadata().inputs;
  for (size_t i = 0; i < inputs.size() && inputs.size() == specs.size(); ++i) {
    if (!inputs[i].present() || inputs[i].size() > 0) continue;
    return Annotate(failed, fmt::format("input '{}' is empty (shape {})", specs[i].name,
                                        inputs[i].shape().ToString()));
  }
  return failed;
}

std::string TimeText(Duration time) {
  const double us = std::chrono::duration<double, std::micro>(time).count();
  return us < 1000 ? fmt::format("{:.3g} µs", us) : fmt::format("{:.7g} ms", us / 1000);
}

}  // namespace chairlift
