// What padded batches of a model cost by rows and length: kept on disk, or measured.
#ifndef CHAIRLIFT_ENGINE_LENGTH_COST_TABLE_H_
#define CHAIRLIFT_ENGINE_LENGTH_COST_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "batching/length_costs.h"
#include "engine/timing.h"
#include "runtime/cost_table.h"

namespace chairlift {

using LengthSamples = std::vector<LengthCosts::Sample>;

struct LengthSampling {
  int max_rows = 1;
  int max_length = 1;
  int64_t max_places = 8192;  // rows times length, of a batch that is measured
  int workers = 1;
  Duration budget = std::chrono::seconds(5);  // of all sizes together, about
  TimingProgress progress = nullptr;
};

// The key under which they are kept. `description` tells apart whatever takes another time
// (DescribeForCosts).
CostTable::Key LengthCostKey(const std::string& description, const LengthSampling& sampling);

// Those kept under `key`, where they are whole and of this machine and build; else, if `measure`
// says so, the sizes of SizesToMeasure(), the smallest first, as far as the budget goes, which are
// then kept. `make`: a batch of that size; null, or one that fails, is left out. Empty where
// nothing is known.
LengthSamples FindLengthCosts(const CostTable::Key& key, const LengthSampling& sampling,
                              bool measure, absl::FunctionRef<TimedRun(int rows, int length)> make);

// Keeps them where FindLengthCosts() finds them: also what was learnt while serving
// (LengthCosts::Samples).
Status KeepLengthCosts(const CostTable::Key& key, const LengthSamples& samples);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_LENGTH_COST_TABLE_H_
