// The cost of each operator of a model by batch size (DVABatch §7.1): measured once, kept on disk.
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

// Costs of whole batches, by rows.
using CostByRows = std::map<int, Duration>;

// The smallest batch whose rows per second are within 5% of the best; 1 if nothing is known.
int PreferredRows(const CostByRows& costs);

// The sum of `costs`, at the sizes that all of them have.
CostByRows SumOfCosts(std::span<const CostByRows> costs);

// Whether any operator has been timed.
bool AnyKnown(std::span<const CostByRows> costs);

struct OperatorProfiling {
  int max_rows = 64;
  size_t max_bytes = size_t{2} << 30;  // of intermediates, per worker
  int workers = 1;
  Duration budget = std::chrono::seconds(20);  // for all sizes together, approximately
  TimingProgress progress = nullptr;
};

// Costs by node of the graph after the passes, on one worker while the others do the same. They are
// for 1, 2, 4 … rows, as far as time and memory allow, and empty for nodes that are not run.
// Returns those saved for a graph of these operators and shapes on this machine. Otherwise measures
// and saves them if `measure` is true, else returns empty costs. `make`: inputs of the given rows.
// An error if not even one row runs.
StatusOr<std::vector<CostByRows>> FindOperatorCosts(
    Executable& executable, const OperatorProfiling& profiling, bool measure,
    absl::FunctionRef<StatusOr<std::vector<Tensor>>(int rows)> make);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_COSTS_OPERATOR_COSTS_H_
