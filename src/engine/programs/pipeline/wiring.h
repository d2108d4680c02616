// The inputs and outputs of a pipeline, and which step reads what, derived from its settings and
// the signatures of its models.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_WIRING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_WIRING_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Values are numbered: first the request's inputs, then results of steps that something reads.
struct PipelineWiring {
  struct Given {
    std::string output;  // of the model
    size_t value = 0;
  };
  struct Step {
    std::vector<std::pair<std::string, size_t>> reads;  // the model's input and the value
    std::vector<Given> gives;
  };

  Signature signature;  // of the pipeline
  std::vector<Step> steps;
  std::vector<size_t> outputs;  // the value of each output in the signature
  size_t num_values = 0;
  // Dimension 0 of the first input is the number of rows.
  bool counts_rows = false;
};

// Names have the meaning of assignments in order: if several steps produce a name, a reader gets
// the last one before it. `models`: by step. InvalidArgument has the step, the input or output, and
// what would be correct.
StatusOr<PipelineWiring> WirePipeline(const PipelineConfig& config,
                                      const std::vector<const Signature*>& models);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_WIRING_H_
