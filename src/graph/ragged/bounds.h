// How long sequences may be so that no table is read beyond its end.
#ifndef CHAIRLIFT_GRAPH_RAGGED_BOUNDS_H_
#define CHAIRLIFT_GRAPH_RAGGED_BOUNDS_H_

#include <cstdint>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {

// The longest length for which every Gather from a fixed table by something that grows with the
// length (places, running sums of marks) stays within the table; 0: not limited. A longer request
// may fail, and its batch with it.
int64_t LongestForTables(const Packer& packer);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_BOUNDS_H_
