// What each operator of a model takes by batch size (DVABatch §7.1): measured once, kept on disk.
#ifndef CHAIRLIFT_ENGINE_COSTS_OPERATOR_COSTS_H_
#define CHAIRLIFT_ENGINE_COSTS_OPERATOR_COSTS_H_

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/status.h"
#include "chairlift/tensor.h"
#include "engine/costs/measure.h"
#include "runtime/executable.h"

namespace chairlift {

// Of whole batches, by rows.
using CostByRows = std::map<int, Duration>;

// The smallest batch whose rows a second are within 5% of the best; 1 where nothing is known.
int PreferredRows(const CostByRows& costs);

// What `costs` are together, at the sizes that all of them have.
CostByRows SumOfCosts(std::span<const CostByRows> costs);

// Whether any operator has been timed.
bool AnyKnown(std::span<const CostByRows> costs);

struct OperatorProfiling {
  int max_rows = 64;
  size_t max_bytes = size_t{2} << 30;  // of intermediates, on one worker
  int workers = 1;
  Duration budget = std::chrono::seconds(20);  // of all sizes together, about
  TimingProgress progress = nullptr;
};

// By node of the graph as the passes left it: on one worker, while the others do the same. At 1, 2,
// 4 … rows, as far as time and memory allow. Empty for nodes that are not run. Those kept on disk
// for a graph of these operators and shapes on this machine; else, if `measure` says so, measured
// and then kept; else all empty. `make`: inputs of so many rows. An error where not even one row
// runs.
StatusOr<std::vector<CostByRows>> FindOperatorCosts(
    Executable& executable, const OperatorProfiling& profiling, bool measure,
    absl::FunctionRef<StatusOr<std::vector<Tensor>>(int rows)> make);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_OPERATOR_COSTS_H_
