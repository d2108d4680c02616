// Which stage may run with which buffers (DVABatch §6): the states of buffers and stage executors.
//
// Executor i reads buffer j before stage i, and executor i − 1 writes it. Together with buffer j
// after the stage, it is pair j of executor i. A batch keeps its pair from stage to stage. With one
// pair, batches run one after the other; with two or more, as a pipeline.
//
// Differences from the paper. Its states alone do not protect a stretched batch, whose new requests
// go through buffers that the batch still holds. Here a buffer has an owner, and counts the queries
// written to it that the next stage has not read. The parts of one owner share the buffer, because
// they read and write different rows. Another owner may write only when all has been read. The last
// executor frees its own input, because none follows it.
#ifndef CHAIRLIFT_BATCHING_POLICIES_STAGES_BUFFER_PAIRS_H_
#define CHAIRLIFT_BATCHING_POLICIES_STAGES_BUFFER_PAIRS_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace chairlift {

enum class BufferState : uint8_t { kAvailable, kInvalid, kInReading, kInWriting };
enum class ExecutorState : uint8_t { kActive, kChecking, kWorking, kInactive };

class BufferPairs {
 public:
  // All ≥ 1. `at_once`: parts that an executor may run at the same time (1 in the paper).
  BufferPairs(int32_t stages, int32_t pairs, int32_t at_once = 1);

  // A pair with which a batch may enter the first stage, or nothing if that executor is inactive or
  // fully busy. The batch keeps the pair.
  std::optional<int32_t> Legitimate() const;

  // Starts `num` queries of an owner on the executor. True: it runs them until End(). False: it is
  // in the checking state; try again after the next End(). Pair −1: for queries that skipped
  // stages, which have not passed the earlier buffers and use none.
  bool Begin(int32_t stage, int32_t pair, int64_t owner, int32_t num);
  // The executor has run them.
  void End(int32_t stage, int32_t pair, int32_t num);

  ExecutorState executor(int32_t stage) const { return executors_[At(stage)].state; }
  // The buffer before `stage`; after the last stage if `stage` is the number of stages.
  BufferState buffer(int32_t stage, int32_t pair) const;

 private:
  struct Executor {
    ExecutorState state = ExecutorState::kActive;
    int32_t running = 0;           // parts
    std::vector<int32_t> to_free;  // pairs it has run, to be freed for the previous executor
  };
  struct Buffer {
    bool invalid = false;
    int32_t readers = 0;
    int32_t writers = 0;
    int64_t unread = 0;  // queries
    int64_t owner = -1;  // the last owner that read or wrote it
    bool used() const { return readers + writers > 0; }
    bool writable() const { return !used() && unread == 0; }
  };
  static size_t At(int32_t index) { return static_cast<size_t>(index); }
  bool IsLegitimate(int32_t stage, int32_t pair) const;
  // Activates executors that have a legitimate pair, and frees what the executors before them wait
  // for.
  void Settle();

  const int32_t at_once_;
  std::vector<Executor> executors_;
  std::vector<std::vector<Buffer>> buffers_;  // [stages + 1][pairs]
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGES_BUFFER_PAIRS_H_
