// Chooses the arena offset of each intermediate from sizes and lifetimes alone: pure arithmetic, no
// memory touched.
//
// TurboTransformers (PPoPP'21) §4.2, Algorithm 1, with one chunk. In order of decreasing size, each
// record takes the smallest gap that fits between records alive at the same time, or else the place
// after them. One chunk per plan is enough because a worker's arena outlives its plans; the paper's
// list of chunks is for memory that is returned after each inference.
//
// Unlike the paper, repeated layers are not planned once and copied. A whole plan with shapes and
// kernels takes about 1.5 ms: 0.3% of the compute time of 100 requests of 100 lengths (MiniLM,
// `make bench BENCH=memory`), because plans are kept by shape class. Proving that two layers are
// identical would cost more code than it saves time.
#ifndef CHAIRLIFT_RUNTIME_MEMORY_PLANNER_H_
#define CHAIRLIFT_RUNTIME_MEMORY_PLANNER_H_

#include <cstddef>
#include <span>
#include <vector>

namespace chairlift {

inline constexpr size_t kArenaAlignment = 64;

struct MemoryRecord {
  int first_step = 0;  // alive in steps [first_step, last_step]
  int last_step = 0;
  size_t bytes = 0;
};

struct PlacedRecord {
  MemoryRecord record;
  size_t offset = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // of records[i]; multiples of kArenaAlignment
  size_t arena_bytes = 0;       // past the end of every record, including placed ones
};

// `placed` are records at fixed offsets; new records only avoid them.
MemoryPlan PlanMemory(std::span<const MemoryRecord> records,
                      std::span<const PlacedRecord> placed = {});

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_MEMORY_PLANNER_H_
