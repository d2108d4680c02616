// Rules in a model's configuration for requests and answers beyond the model itself: number of
// rows, inputs that the engine fills, class labels, effect of a timeout.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_REQUEST_RULES_H_
#define CHAIRLIFT_ENGINE_REQUESTS_REQUEST_RULES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/requests/validate.h"

namespace chairlift {

// An input with the position of a request in its sequence. Clients do not send it: every row gets
// one number.
struct SequenceControl {
  enum class Kind { kStart, kEnd, kReady, kId };
  Kind kind = Kind::kStart;
  std::string input = {};
  DType dtype = DType::kUndefined;
  // Scalars for false and true; absent for kId: the number is the sequence's id.
  Tensor off = {};
  Tensor on = {};
};

// The effect of a timeout, if the model's configuration sets it.
struct TimeoutRule {
  bool rejects = true;       // false: late requests are still answered
  bool own_timeout = false;  // requests may have their own, at most the default
  int64_t default_us = 0;    // 0: no timeout
};

struct RequestRules {
  // Maximum rows of a request, along dimension 0 of all inputs; 0: there is no such dimension.
  // Absent: as in the model.
  std::optional<int> max_rows = {};
  bool sequences_only = false;  // requests without a sequence are refused
  std::vector<SequenceControl> controls = {};
  std::map<std::string, Tensor> initial_state = {};  // by input; without the batch dimension
  std::set<std::string> shown_states = {};           // state outputs that clients also get
  std::map<std::string, std::vector<std::string>> labels = {};  // by output: labels of its classes
  std::optional<TimeoutRule> timeout = {};
  std::string shown = {};  // the whole configuration as JSON: ModelMetadata::triton_config

  // By output: its declared dimensions after the batch; -1: any size.
  std::map<std::string, std::vector<int64_t>> output_dims = {};

  // The input for the request's seeds (ImportedModel::seeds); empty: the model draws no random
  // numbers.
  std::string seeds = {};

  // Checks that the model has the controls as inputs, with their types and one number per row.
  Status Check(const Signature& signature) const;
  // Finds where the number of seeds comes from, and whether "seed" is an input of the model.
  void PlaceSeeds(const Signature& signature);
  // Removes from output_dims what every answer satisfies.
  void DropProved(const Signature& signature);
  // InvalidArgument if an answer does not match output_dims.
  Status CheckOutputs(const std::vector<NamedTensor>& outputs) const;
  // Applies the rule to the request's timeout.
  void SetTimeout(InferRequest& request) const;
  // Adds the seeds to a request, and the controls to one of a sequence, and checks its rows.
  // InvalidArgument says what is wrong.
  Status Prepare(InferRequest& request) const;

 private:
  Status AddSeeds(InferRequest& request) const;

  std::string rows_from_ = {};     // the input whose dimension 0 counts the seeds; empty: one seed
  bool seed_is_an_input_ = false;  // of the file
};

// The `count` largest scores of each row as "0.913:5:CAT": the score, the class (its index in the
// row), and its label if there is one. BYTES [rows, count], or [count] without `rows`; fewer if
// there are fewer scores.
StatusOr<Tensor> LargestClasses(const Tensor& scores, int count, bool rows,
                                const std::vector<std::string>& labels);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_REQUEST_RULES_H_
