// What the protocol shows about the server and about a model: metadata as in the Open Inference
// Protocol v2, and the configuration as in Triton. Statistics and the index are the engine's own
// ModelStatistics and ModelIndexEntry, which have the protocol's fields.
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

// Without the state of sequences, which stays in the engine. Requests may have any number of rows:
// dimension 0 is -1 if the model batches.
struct ModelSignature {
  std::string name;
  std::vector<std::string> versions;
  std::string platform;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

// `dims` of tensors do not include the batch dimension if max_batch_size is positive.
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
  int64_t max_batch_size = 0;  // rows of one request; 0: no batch dimension
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  // One of the two, or neither if the model does not batch.
  std::optional<SequenceBatching> sequence_batching;
  std::optional<DynamicBatching> dynamic_batching;
  std::vector<int> preferred_batch_sizes;                            // for either
  int64_t max_queue_delay_us = 0;                                    // for either
  std::vector<std::pair<std::string_view, std::string>> parameters;  // all are strings
};

ServerMetadata DescribeServer();
ModelSignature SignatureOf(const ModelMetadata& model);
ModelConfiguration ConfigurationOf(const ModelMetadata& model);
// "TYPE_FP32"
std::string ConfigurationType(DType datatype);
// "READY"
std::string_view StateName(ModelState state);
// "embed" for the model "minilm/embed", which the engine made for minilm; empty: the model is not
// part of another.
std::string_view PartOf(std::string_view model);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_METADATA_H_
