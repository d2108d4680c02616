// The maximum length of sequences for which no table is read beyond its end.
#ifndef CHAIRLIFT_GRAPH_RAGGED_BOUNDS_H_
#define CHAIRLIFT_GRAPH_RAGGED_BOUNDS_H_

#include <cstdint>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {

// The longest length at which every index stays within its table. This concerns Gather nodes that
// read a fixed table by a value that grows with the length, such as positions. 0: no limit. A
// longer request may fail, together with its batch.
int64_t LongestForTables(const Packer& packer);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_BOUNDS_H_
