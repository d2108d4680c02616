// What the protocol shows of the server and of a model: metadata, as the Open Inference Protocol v2
// has it, and the configuration, as Triton has it. Statistics and the index are the engine's own
// ModelStatistics and ModelIndexEntry: they have the protocol's fields.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_METADATA_H_
#define CHAIRLIFT_SERVER_PROTOCOL_METADATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift::protocol {

struct ServerMetadata {
  std::string_view name;
  std::string_view version;
  std::vector<std::string_view> extensions;
};

// Without the state of sequences, which stays with the engine. Requests may bring any number of
// rows: dimension 0 is -1 where the model batches.
struct ModelSignature {
  std::string name;
  std::vector<std::string> versions;
  std::string platform;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

// `dims` of tensors are without the batch dimension where max_batch_size is above 0.
struct ModelConfiguration {
  struct State {
    std::string input_name;
    std::string output_name;
    TensorSpec spec;  // of the input
  };
  struct SequenceBatching {
    int64_t max_idle_us = 0;
    int max_candidate_sequences = 0;
    std::vector<State> states;
  };
  struct DynamicBatching {
    int64_t default_timeout_us = 0;
    int max_queue_size = 0;
  };

  std::string name;
  std::string platform;
  std::string_view backend = "chairlift";
  int64_t max_batch_size = 0;  // rows of one request; 0: there is no batch dimension
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  // One of the two, or neither where the model does not batch.
  std::optional<SequenceBatching> sequence_batching;
  std::optional<DynamicBatching> dynamic_batching;
  std::vector<int> preferred_batch_sizes;                            // of either
  int64_t max_queue_delay_us = 0;                                    // of either
  std::vector<std::pair<std::string_view, std::string>> parameters;  // all of them strings
};

ServerMetadata DescribeServer();
ModelSignature SignatureOf(const ModelMetadata& model);
ModelConfiguration ConfigurationOf(const ModelMetadata& model);
// "TYPE_FP32"
std::string ConfigurationType(DType datatype);
// "READY"
std::string_view StateName(ModelState state);
// "embed" of the model "minilm/embed", which the engine made for minilm; empty: the model is no
// part of another.
std::string_view PartOf(std::string_view model);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_METADATA_H_
