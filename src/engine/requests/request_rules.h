// What a model's configuration says of its requests and answers beyond what the model does: how
// many rows, inputs that the engine fills, labels of classes, what a timeout does.
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

// An input that says of a sequence's request where in the sequence it is. Clients do not send it:
// every row gets one number.
struct SequenceControl {
  enum class Kind { kStart, kEnd, kReady, kId };
  Kind kind = Kind::kStart;
  std::string input = {};
  DType dtype = DType::kUndefined;
  // Scalars for false and true; of kId absent: the sequence's id is the number.
  Tensor off = {};
  Tensor on = {};
};

// What a timeout does, where the model's configuration says so.
struct TimeoutRule {
  bool rejects = true;       // false: late requests are answered all the same
  bool own_timeout = false;  // requests may bring one, at most the default
  int64_t default_us = 0;    // 0: none
};

struct RequestRules {
  // Rows that one request may bring, along dimension 0 of all inputs; 0: there is no such
  // dimension. Absent: as the model has it.
  std::optional<int> max_rows = {};
  bool sequences_only = false;  // requests of no sequence are refused
  std::vector<SequenceControl> controls = {};
  std::map<std::string, Tensor> initial_state = {};  // by input; without the batch
  std::set<std::string> shown_states = {};  // outputs that leave states, and that clients get
  std::map<std::string, std::vector<std::string>> labels = {};  // by output, of its classes
  std::optional<TimeoutRule> timeout = {};
  std::string shown = {};  // all of the configuration, as JSON: ModelMetadata::triton_config

  // By output, what its answers are declared to be behind the batch; -1: any size.
  std::map<std::string, std::vector<int64_t>> output_dims = {};

  // That the model has the inputs of the controls, of their types, for one number a row.
  Status Check(const Signature& signature) const;
  // Leaves out of output_dims what holds of every answer.
  void DropProved(const Signature& signature);
  // InvalidArgument where an answer is not as output_dims has it.
  Status CheckOutputs(const std::vector<NamedTensor>& outputs) const;
  // Sets the request's timeout to what the rule makes of it.
  void SetTimeout(InferRequest& request) const;
  // Adds the controls to a request of a sequence, and checks its rows. InvalidArgument names what
  // is wrong.
  Status Prepare(InferRequest& request) const;
};

// The `count` largest scores of each row as "0.913:5:CAT": the score, the class (its place in the
// row), and its label where there is one. BYTES [rows, count], or [count] without `rows`; fewer
// where there are fewer scores.
StatusOr<Tensor> LargestClasses(const Tensor& scores, int count, bool rows,
                                const std::vector<std::string>& labels);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_REQUEST_RULES_H_
