// The encoder of a model that generates, compiled: it leaves the keys and values of sources in
// blocks.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SOURCE_ENCODER_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SOURCE_ENCODER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/programs/generating/paged_step.h"
#include "graph/decoders/decoder.h"
#include "runtime/executable.h"
#include "runtime/worker_memory.h"

namespace chairlift {

struct SourceTokens {
  std::span<const int64_t> tokens;
  std::span<const int64_t> blocks;  // of all; nobody else's
};

class SourceEncoder {
 public:
  static StatusOr<std::unique_ptr<SourceEncoder>> Create(SourceModel model,
                                                         const ExecutableOptions& options);

  // The keys and values of all tokens are in their blocks of `step` then. One run at a time.
  Status Run(std::span<const SourceTokens> sources, PagedStep& step, Team& team, int worker,
             WorkerMemory& memory);

 private:
  explicit SourceEncoder(const SourceModel& model);
  // Of sources that share a batch.
  Status RunTogether(std::span<const SourceTokens> sources, PagedStep& step, Team& team, int worker,
                     WorkerMemory& memory);

  const bool packed_;
  const DType mask_;
  const std::vector<RaggedInput> inputs_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SOURCE_ENCODER_H_
