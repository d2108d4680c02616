// The calls of the Open Inference Protocol v2, with Triton's extensions, over an engine; and what
// all front ends share: readiness, clients and their limits, metrics.
//
// A front end parses a call, makes it here, and writes the result. Inference goes to
// engine() itself, from an InferRequest that request.h has checked.
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

// Thread-safe. Load() and Unload() block until the model is loaded or gone; the others are quick.
class Service {
 public:
  // `engine` must outlive it. `model_control`: clients may load and unload models. `ready`: the
  // models that are to be served are loaded.
  // `strict`: it is not ready while a model that was to be loaded is not.
  Service(Engine& engine, const Limits& limits, bool model_control, bool ready, bool strict);

  Engine& engine() const { return engine_; }
  Metrics& metrics() { return metrics_; }
  ClientTable& clients() { return clients_; }

  void SetReady() { loading_ = false; }
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }
  // OK, or kUnavailable: why not.
  Status Ready() const;
  // Likewise; kNotFound where there is no such model.
  Status ModelReady(const std::string& model, const std::string& version) const;

  // An empty version is the latest. kNotFound where there is no such model or version, or where
  // they may not be loaded yet: kUnavailable.
  StatusOr<ModelMetadata> Find(const std::string& model, const std::string& version) const;
  // Empty name: of all models but the parts of others.
  StatusOr<std::vector<ModelStatistics>> Statistics(const std::string& model,
                                                    const std::string& version) const;
  // What a failed call to the engine is to its client, as above.
  Status Explain(const Status& status) const;

  // Without the parts of others (PartOf()): many clients leave a '/' in a name as it is, and could
  // not address them.
  std::vector<ModelIndexEntry> Index(bool ready_only) const;
  Status MayLoad() const;  // and unload: OK or kPermissionDenied
  // That a load or unload may have this parameter: those that would change the outcome and are not
  // supported are refused.
  static Status CheckRepositoryParameter(std::string_view name);
  // Both are logged. `config`: the parameter of that name; empty: it has none.
  Status Load(const std::string& model, const std::string& config);
  Status Unload(const std::string& model);
  // Runs loads and unloads one after the other, on a thread of their own. kResourceExhausted, and
  // the task is dropped, where max_admin_requests wait already.
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
