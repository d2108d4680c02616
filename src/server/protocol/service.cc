#include "server/protocol/service.h"

#include <utility>

#include "base/status.h"

namespace chairlift::protocol {

Service::Service(Engine& engine, const Limits& limits, bool model_control, bool ready)
    : engine_(engine),
      max_admin_requests_(limits.max_admin_requests),
      model_control_(model_control),
      loading_(!ready),
      metrics_(engine),
      clients_(static_cast<int64_t>(limits.max_client_buffered_bytes),
               std::make_shared<ByteBudget>(static_cast<int64_t>(limits.max_buffered_bytes))),
      background_(static_cast<size_t>(limits.max_admin_requests)) {}

Status Service::Ready() const {
  if (draining_) return Unavailable("the server is draining");
  if (loading_) return Unavailable("the server is loading its models");
  for (const ModelIndexEntry& entry : engine_.Index()) {
    if (entry.state == ModelState::kLoading) {
      return Unavailable("model '{}' is loading", entry.name);
    }
  }
  return absl::OkStatus();
}

Status Service::ModelReady(const std::string& model, const std::string& version) const {
  if (engine_.ModelReady(model, version)) return absl::OkStatus();
  for (const ModelIndexEntry& entry : engine_.Index()) {
    if (entry.name != model || (!version.empty() && entry.version != version)) continue;
    return Unavailable("model '{}' is not ready: {}{}{}", model, StateName(entry.state),
                       entry.reason.empty() ? "" : ": ", entry.reason);
  }
  return Explain(
      NotFound("model '{}'{}{} is not known", model, version.empty() ? "" : " version ", version));
}

StatusOr<ModelMetadata> Service::Find(const std::string& model, const std::string& version) const {
  StatusOr<ModelMetadata> found = engine_.Metadata(model, version);
  if (!found.ok()) return Explain(found.status());
  return found;
}

StatusOr<std::vector<ModelStatistics>> Service::Statistics(const std::string& model,
                                                           const std::string& version) const {
  StatusOr<std::vector<ModelStatistics>> statistics = engine_.Statistics(model, version);
  if (!statistics.ok()) return Explain(statistics.status());
  return statistics;
}

Status Service::Explain(const Status& status) const {
  if (!absl::IsNotFound(status) || !loading_) return status;
  return Unavailable("the server is loading its models; this may be one of them");
}

std::vector<ModelIndexEntry> Service::Index(bool ready_only) const {
  std::vector<ModelIndexEntry> entries = engine_.Index();
  if (ready_only) {
    std::erase_if(entries, [](const auto& entry) { return entry.state != ModelState::kReady; });
  }
  return entries;
}

Status Service::MayLoad() const {
  if (model_control_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "clients may not load or unload models here: the server was started without "
      "--model-control-mode explicit");
}

Status Service::CheckRepositoryParameter(std::string_view name) {
  if (name != "config" && !name.starts_with("file:")) return absl::OkStatus();
  return InvalidArgument(
      "parameter \"{}\" is not supported: models and their configuration come from the "
      "repository's folder",
      name);
}

Status Service::RunInBackground(std::function<void()> task) {
  if (background_.Run(std::move(task))) return absl::OkStatus();
  return ResourceExhausted("{} loads and unloads are waiting already, which is the limit",
                           max_admin_requests_);
}

}  // namespace chairlift::protocol
