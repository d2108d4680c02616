#include "base/status.h"
#include "cli/load/target.h"

namespace chairlift {
namespace {

class EngineTarget final : public LoadTarget {
 public:
  EngineTarget(Engine& engine, ModelMetadata metadata)
      : engine_(engine), metadata_(std::move(metadata)) {}

  std::string name() const override { return metadata_.name + " in process"; }
  const std::vector<TensorSpec>& inputs() const override { return metadata_.inputs; }
  size_t Prepare(std::vector<NamedTensor> inputs, const LoadSequence& sequence) override {
    InferRequest request;
    request.model = metadata_.name;
    request.inputs = std::move(inputs);
    request.sequence = sequence.id;
    request.sequence_start = sequence.start;
    prepared_.push_back(std::move(request));
    return prepared_.size() - 1;
  }
  void Send(size_t prepared, std::function<void(Status)> done) override {
    engine_.InferAsync(prepared_[prepared],
                       [done = std::move(done)](const StatusOr<InferResponse>& response) {
                         done(response.status());
                       });
  }

  StatusOr<ModelStatistics> Statistics() override {
    auto statistics = engine_.Statistics(metadata_.name, metadata_.version);
    if (!statistics.ok()) return statistics.status();
    if (statistics->empty()) return NotFound("model '{}' is no longer loaded", metadata_.name);
    return std::move((*statistics)[0]);
  }

 private:
  Engine& engine_;
  ModelMetadata metadata_;
  std::vector<InferRequest> prepared_;
};

}  // namespace

StatusOr<std::unique_ptr<LoadTarget>> MakeEngineTarget(Engine& engine, const std::string& model) {
  auto metadata = engine.Metadata(model);
  if (!metadata.ok()) return metadata.status();
  return std::unique_ptr<LoadTarget>(new EngineTarget(engine, *std::move(metadata)));
}

}  // namespace chairlift
