// The compiled encoder of a model that generates: it writes the keys and values of sources to
// blocks.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SOURCE_ENCODER_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SOURCE_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/programs/generating/paged_step.h"
#include "graph/decoders/decoder.h"
#include "runtime/executable.h"
#include "runtime/worker_memory.h"

namespace chairlift {

struct SourceTokens {
  std::span<const int64_t> tokens;  // for features: one unused entry per position
  std::span<const int64_t> blocks;  // all of them; they belong to it alone
  Tensor features = {};             // for an encoder of features
};

class SourceEncoder {
 public:
  static StatusOr<std::unique_ptr<SourceEncoder>> Create(SourceModel model,
                                                         const ExecutableOptions& options);

  // Afterwards the keys and values of all tokens are in their blocks of `step`. One run at a time.
  Status Run(std::span<const SourceTokens> sources, PagedStep& step, Team& team, int worker,
             WorkerMemory& memory);

  const std::optional<SourceFeatures>& features() const { return features_; }

 private:
  explicit SourceEncoder(const SourceModel& model);
  // For one source.
  Status RunFeatures(const SourceTokens& source, PagedStep& step, Team& team, int worker,
                     WorkerMemory& memory);
  // For sources that share a batch.
  Status RunTogether(std::span<const SourceTokens> sources, PagedStep& step, Team& team, int worker,
                     WorkerMemory& memory);

  const bool packed_;
  const DType mask_;
  const std::optional<SourceFeatures> features_;
  const std::vector<RaggedInput> inputs_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SOURCE_ENCODER_H_
