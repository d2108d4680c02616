// The calls of the Open Inference Protocol v2, with Triton's extensions, over an engine; and state
// common to all front ends: readiness, clients and their limits, metrics.
//
// A front end parses a call, makes it here, and writes the result. Inference goes directly to
// engine(), with an InferRequest that request.h has checked.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_SERVICE_H_
#define CHAIRLIFT_SERVER_PROTOCOL_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/background.h"
#include "chairlift/engine.h"
#include "server/protocol/clients.h"
#include "server/protocol/limits.h"
#include "server/protocol/metadata.h"
#include "server/protocol/metrics.h"

namespace chairlift::protocol {

// Thread-safe. Load() and Unload() block until the model is loaded or unloaded; the others are
// quick.
class Service {
 public:
  // `engine` must outlive it. `model_control`: clients may load and unload models. `ready`: the
  // initial models are loaded. `strict`: not ready while a model that should be loaded is not.
  // `metric_names`: served beside ours.
  Service(Engine& engine, const Limits& limits, bool model_control, bool ready, bool strict,
          const OtherNames& metric_names);

  Engine& engine() const { return engine_; }
  Metrics& metrics() { return metrics_; }
  ClientTable& clients() { return clients_; }

  void SetReady() { loading_ = false; }
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }
  // OK, or kUnavailable with the reason.
  Status Ready() const;
  // The same for a model; kNotFound if there is no such model.
  Status ModelReady(const std::string& model, const std::string& version) const;

  // An empty version is the latest. kNotFound if there is no such model or version; kUnavailable if
  // models are still loading.
  StatusOr<ModelMetadata> Find(const std::string& model, const std::string& version) const;
  // Empty name: all models except the parts of others.
  StatusOr<std::vector<ModelStatistics>> Statistics(const std::string& model,
                                                    const std::string& version) const;
  // Converts the error of a failed engine call to one for its client, as above.
  Status Explain(const Status& status) const;

  // Without the parts of others (PartOf()): many clients do not escape a '/' in a name, and could
  // not address them.
  std::vector<ModelIndexEntry> Index(bool ready_only) const;
  Status MayLoad() const;  // and unload: OK or kPermissionDenied
  // Checks a parameter of a load or unload: unsupported ones that would change the result are
  // refused.
  static Status CheckRepositoryParameter(std::string_view name);
  // Both are logged. `config`: the parameter of that name; empty: absent.
  Status Load(const std::string& model, const std::string& config);
  Status Unload(const std::string& model);
  // Runs loads and unloads one after the other, on a separate thread. kResourceExhausted, with the
  // task dropped, if max_admin_requests already wait.
  Status RunInBackground(std::function<void()> task);

 private:
  Engine& engine_;
  const int max_admin_requests_;
  const bool model_control_;
  const bool strict_;
  std::atomic<bool> loading_;
  std::atomic<bool> draining_{false};
  Metrics metrics_;
  ClientTable clients_;
  Background background_;  // its tasks use the others
};

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_SERVICE_H_
