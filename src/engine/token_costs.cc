#include "engine/token_costs.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/packing.h"
#include "engine/timing.h"

namespace chairlift {
namespace {

constexpr int kLength = 64;  // of a sequence
constexpr int kMinTokens = 8;
constexpr int kMaxTokens = 4096;
// Where nothing was measured: enough rows for products to run at full speed.
constexpr int kDefaultBudget = 512;

// A request of ones: every token counts, and 1 is a token of any vocabulary.
std::unique_ptr<Request> Ones(const Signature& signature, int tokens) {
  auto request = std::make_unique<Request>();
  FittingRequest& fitting = request->fitting;
  fitting.length = std::min(tokens, kLength);
  fitting.rows = static_cast<int32_t>(tokens / fitting.length);
  fitting.tokens.assign(static_cast<size_t>(fitting.rows), static_cast<int32_t>(fitting.length));
  fitting.num_tokens = tokens;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    Shape shape = {fitting.rows};
    const SymbolicSpec& spec = signature.inputs[i];
    for (int axis = 1; axis < spec.shape.rank(); ++axis) {
      const Dim& dim = spec.shape[axis];
      const bool length = axis == 1 && signature.sequences->token_inputs[i];
      shape.Append(length ? fitting.length : dim.known() ? dim.value() : 1);
    }
    Tensor ones = Tensor::Allocate(spec.dtype, shape);
    std::memset(ones.raw(), 0, ones.byte_size());
    if (spec.dtype == DType::kInt64) std::fill_n(ones.data<int64_t>(), ones.size(), 1);
    if (spec.dtype == DType::kInt32) std::fill_n(ones.data<int32_t>(), ones.size(), 1);
    if (spec.dtype == DType::kBool) std::fill_n(ones.data<bool>(), ones.size(), true);
    if (spec.dtype == DType::kFloat) std::fill_n(ones.data<float>(), ones.size(), 1.0f);
    fitting.inputs.push_back(std::move(ones));
  }
  return request;
}

}  // namespace

RowCosts FindTokenCosts(const Signature& signature, RaggedProgram& program, int workers,
                        bool measure) {
  std::string description = "tokens of";
  DescribeForCosts(program.executable->graph(), description);
  const CostTable::Key key = CostTableKeyOf(description, workers);
  RowCosts costs = KeptCosts(key);
  if (!costs.empty() || !measure) return costs;
  const int64_t longest = signature.sequences->max_length;
  if (longest > 0 && longest < kLength) return costs;
  const auto make = [&](size_t /*program*/, int tokens) -> TimedRun {
    return [&signature, &program, request = std::shared_ptr<Request>(Ones(signature, tokens))](
               int worker, WorkerMemory& memory) -> Status {
      const Request* const requests[] = {request.get()};
      const Packing packing(signature, program.inputs, requests);
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, packing.Inputs(memory.staging));
      SoloTeam team(worker);
      return program.executable->Run(inputs, team, worker, memory.compute).status();
    };
  };
  costs = MeasureCosts(1, {.min_rows = kMinTokens, .max_rows = kMaxTokens, .workers = workers},
                       make)[0];
  // Where the folder cannot be written, the next load measures again.
  if (!costs.empty()) KeepCosts(key, costs).IgnoreError();
  return costs;
}

BatchSizes ChooseTokenBudget(const RowCosts& costs) {
  TabulatedCosts table;
  if (costs.empty() || !table.AddType(costs).ok()) return {.min = 1, .max = kDefaultBudget};
  return ChooseBatchSizes(table, 0, kMaxTokens);
}

}  // namespace chairlift
