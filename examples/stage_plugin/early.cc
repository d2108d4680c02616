// A user-defined batching policy and exit, for a classifier in stages with an intermediate head.
//
// The policy is a set of conditions that call the meta-operations, as in Figure 12 of DVABatch. A
// request that arrives while the latest batch is young joins it (stretch). Others form a new batch
// of at most `rows` rows (new). Before the last stage, a batch continues query by query (split).
//
// The exit: a request exits if the head is confident in every row, that is, if the largest
// probability exceeds the second largest by `margin`.
#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <vector>

#include "chairlift/stage_plugin.h"

namespace {

using chairlift::ExitPredicate;
using chairlift::MetaOperations;
using chairlift::StageBatch;
using chairlift::StagePlugin;
using chairlift::StagePolicy;
using chairlift::StatusOr;
using chairlift::Tensor;

class EarlyPolicy final : public StagePolicy {
 public:
  explicit EarlyPolicy(int rows) : rows_(rows) {}

  void Schedule(const StageBatch& batch, MetaOperations& operations) override {
    if (batch.stage == 0) {
      const StageBatch* latest = operations.latest();
      const bool young = latest != nullptr && latest->stage <= batch.stages / 2;
      if (young && operations.Stretch(1)) return;
      operations.New(HowMany(batch.rows));
    } else if (batch.stage == batch.stages - 1) {
      operations.Split(std::vector<int>(batch.rows.size(), 1));
    }
  }

 private:
  // How many queries have rows_ rows together; at least one, whatever its rows.
  int HowMany(std::span<const int32_t> rows) const {
    int count = 1;
    int sum = rows[0];
    while (count < static_cast<int>(rows.size()) && sum + rows[count] <= rows_) {
      sum += rows[count++];
    }
    return count;
  }

  const int rows_;
};

// An option as a number.
template <typename T>
StatusOr<T> Option(const StagePlugin::Model& model, const char* name, T absent) {
  const auto found = model.options.find(name);
  if (found == model.options.end()) return absent;
  const std::string& text = found->second;
  T number = absent;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number > T(0))) {
    return absl::InvalidArgumentError("option '" + std::string(name) + "' is '" + text +
                                      "'; it must be a number above 0");
  }
  return number;
}

StatusOr<std::unique_ptr<StagePolicy>> MakePolicy(const StagePlugin::Model& model) {
  const StatusOr<int> rows = Option(model, "rows", 8);
  if (!rows.ok()) return rows.status();
  return std::make_unique<EarlyPolicy>(*rows);
}

// For an exit without a threshold, the engine checks only its name.
StatusOr<ExitPredicate> MakeExit(const StagePlugin::Model& model, const std::string& /*output*/) {
  const StatusOr<float> margin = Option(model, "margin", 0.5f);
  if (!margin.ok()) return margin.status();
  return [margin = *margin](const Tensor& output) {
    const int64_t rows = output.shape()[0];
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t width = output.size() / rows;
      if (width < 2) return false;
      std::vector<float> values(output.data<float>() + row * width,
                                output.data<float>() + (row + 1) * width);
      std::partial_sort(values.begin(), values.begin() + 2, values.end(), std::greater<>());
      if (values[0] - values[1] < margin) return false;
    }
    return true;
  };
}

}  // namespace

CHAIRLIFT_STAGE_PLUGIN(.make_policy = MakePolicy, .make_exit = MakeExit)
