// Where each intermediate lies in an arena, from sizes and lifetimes alone: pure arithmetic, no
// memory touched.
//
// TurboTransformers (PPoPP'21) §4.2, Algorithm 1, with one chunk: by size, decreasing, each record
// takes the smallest gap that fits between records alive at the same time, or goes after them. We
// keep one chunk for each plan because a worker's arena outlives its plans; the document's list of
// chunks is for memory that is handed back after each inference.
//
// Repeated layers are not planned once and then copied, as the document has it: a whole plan,
// shapes and kernels included, takes about 1.5 ms, 0.3% of computing over 100 requests of as many
// lengths (MiniLM, `make bench BENCH=memory`), since plans are kept by shape class. The proof that
// two layers are one and the same would cost more code than it saves time.
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
  std::vector<size_t> offsets;  // of records[i], multiples of kArenaAlignment
  size_t arena_bytes = 0;       // past the end of every record, placed ones included
};

// `placed` are records whose place is settled; they are only kept clear of.
MemoryPlan PlanMemory(std::span<const MemoryRecord> records,
                      std::span<const PlacedRecord> placed = {});

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_MEMORY_PLANNER_H_
