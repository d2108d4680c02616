#include "server/protocol/service.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/status.h"
#include "server/protocol/metadata.h"

namespace chairlift::protocol {

namespace {

// Whether the index says that it could not be loaded or does not run.
bool Failed(const ModelIndexEntry& entry) {
  return entry.state == ModelState::kUnavailable && entry.reason != "not loaded" &&
         entry.reason != "unloaded";
}

}  // namespace

Service::Service(Engine& engine, const Limits& limits, bool model_control, bool ready, bool strict,
                 const OtherNames& metric_names)
    : engine_(engine),
      max_admin_requests_(limits.max_admin_requests),
      model_control_(model_control),
      strict_(strict),
      loading_(!ready),
      metrics_(engine, metric_names),
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
    if (strict_ && Failed(entry)) {
      return Unavailable("model '{}' is not ready: {}", entry.name, entry.reason);
    }
  }
  return absl::OkStatus();
}

Status Service::ModelReady(const std::string& model, const std::string& version) const {
  if (draining_) return Unavailable("the server is draining");
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
  if (model.empty()) {
    std::erase_if(*statistics, [](const auto& one) { return !PartOf(one.name).empty(); });
  }
  return statistics;
}

Status Service::Explain(const Status& status) const {
  if (!absl::IsNotFound(status) || !loading_) return status;
  return Unavailable("the server is loading its models; this may be one of them");
}

std::vector<ModelIndexEntry> Service::Index(bool ready_only) const {
  std::vector<ModelIndexEntry> entries = engine_.Index();
  std::erase_if(entries, [&](const auto& entry) {
    return !PartOf(entry.name).empty() || (ready_only && entry.state != ModelState::kReady);
  });
  return entries;
}

Status Service::MayLoad() const {
  if (model_control_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "clients may not load or unload models here: the server was started without "
      "--model-control-mode explicit");
}

Status Service::CheckRepositoryParameter(std::string_view name) {
  if (!name.starts_with("file:")) return absl::OkStatus();
  return InvalidArgument(
      "parameter \"{}\" is not supported: the files of models come from the repository's folder",
      name.substr(0, 64));
}

Status Service::Load(const std::string& model, const std::string& config) {
  Status loaded = engine_.LoadFromRepository(model, config);
  if (!loaded.ok()) {
    spdlog::error("model '{}' not loaded for a client: {}", model, Message(loaded));
    return loaded;
  }
  for (const ModelIndexEntry& entry : engine_.Index()) {
    if (entry.name != model || entry.state != ModelState::kReady) continue;
    const StatusOr<ModelMetadata> metadata = engine_.Metadata(model, entry.version);
    if (!metadata.ok()) continue;
    spdlog::info("loaded for a client: {} version {}: {}", model, entry.version,
                 metadata->diagnosis);
  }
  return loaded;
}

Status Service::Unload(const std::string& model) {
  Status unloaded = engine_.UnloadModel(model);
  if (unloaded.ok()) spdlog::info("unloaded for a client: {}", model);
  return unloaded;
}

Status Service::RunInBackground(std::function<void()> task) {
  if (background_.Run(std::move(task))) return absl::OkStatus();
  return ResourceExhausted("{} loads and unloads are waiting already, which is the limit",
                           max_admin_requests_);
}

}  // namespace chairlift::protocol
