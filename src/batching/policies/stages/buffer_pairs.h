// Which stage may run with which buffers (DVABatch §6): the states of buffers and stage executors.
//
// Buffer j before stage i is what executor i reads and executor i − 1 writes; with the one behind
// the stage it is pair j of executor i. A batch keeps its pair from stage to stage. With one pair
// batches run one after the other; with two or more, as a pipeline.
//
// Where we deviate. The document's states alone do not guard a stretched batch, whose newcomers go
// through buffers that it still holds. Here a buffer has an owner and counts the queries written to
// it that the next stage has not read: the parts of one owner, which read and write rows of their
// own, share it; another owner writes to it only once all has been read. And as nobody follows the
// last executor, it frees its own input.
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
  // All ≥ 1. `at_once`: parts that an executor may run at the same time (the document's: 1).
  BufferPairs(int32_t stages, int32_t pairs, int32_t at_once = 1);

  // A pair with which a batch may enter the first stage; nothing: that executor is inactive or
  // works on as much as it may. It stays the batch's.
  std::optional<int32_t> Legitimate() const;

  // Has the executor run `num` queries of an owner. True: it works on them until End(). False: it
  // is checking; ask again after the next End(). Pair −1: queries that skipped stages, which have
  // not gone through the buffers before this one and use none.
  bool Begin(int32_t stage, int32_t pair, int64_t owner, int32_t num);
  // It has run them.
  void End(int32_t stage, int32_t pair, int32_t num);

  ExecutorState executor(int32_t stage) const { return executors_[At(stage)].state; }
  // Before `stage`; behind the last one where `stage` is their number.
  BufferState buffer(int32_t stage, int32_t pair) const;

 private:
  struct Executor {
    ExecutorState state = ExecutorState::kActive;
    int32_t running = 0;           // parts
    std::vector<int32_t> to_free;  // pairs it has run, to be freed for the executor before it
  };
  struct Buffer {
    bool invalid = false;
    int32_t readers = 0;
    int32_t writers = 0;
    int64_t unread = 0;  // queries
    int64_t owner = -1;  // who last read or wrote it
    bool used() const { return readers + writers > 0; }
    bool writable() const { return !used() && unread == 0; }
  };
  static size_t At(int32_t index) { return static_cast<size_t>(index); }
  bool IsLegitimate(int32_t stage, int32_t pair) const;
  // Executors that have a legitimate pair become active, and free what those before them wait for.
  void Settle();

  const int32_t at_once_;
  std::vector<Executor> executors_;
  std::vector<std::vector<Buffer>> buffers_;  // [stages + 1][pairs]
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGES_BUFFER_PAIRS_H_
