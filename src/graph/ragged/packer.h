// The packed graph under construction, and what is known about the values of the original.
#ifndef CHAIRLIFT_GRAPH_RAGGED_PACKER_H_
#define CHAIRLIFT_GRAPH_RAGGED_PACKER_H_

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/batch_axis/rule.h"
#include "graph/ir.h"
#include "graph/ragged/form.h"
#include "graph/ragged/mask_proof.h"
#include "graph/ragged/ragged.h"

namespace chairlift::ragged {

class Packer {
 public:
  // `original` is the result of Prepare(), and must outlive the packer, which keeps its shapes up
  // to date with the forms.
  explicit Packer(Graph& original);

  const Graph& original() const { return original_; }
  Graph& graph() { return graph_; }
  RaggedModel& model() { return model_; }

  // --- By value of the original -----------------------------------------------------------------
  const Form& form(ValueId id) const { return forms_[static_cast<size_t>(id)]; }
  // The original value in the packed graph; a constant is copied on first use. Sizes have no such
  // value: see Sizes().
  ValueId packed(ValueId id);
  void Set(ValueId id, Form form, ValueId packed);
  void SetSizes(ValueId id, batch_axis::State state);
  void SetUnknown(ValueId id, const std::string& why) {
    forms_[static_cast<size_t>(id)] = Form::Unknown(why);
  }
  // The original node that computes it; null if none does.
  const Node* Producer(ValueId id) const { return patterns_.Producer(id); }
  // For the rules of batch_axis: rows, sizes and shared values.
  std::vector<batch_axis::State>& states() { return states_; }

  // The model's tables do not cover sequences longer than `longest`.
  void LimitLength(int64_t longest) {
    model_.max_length = model_.max_length == 0 ? longest : std::min(model_.max_length, longest);
  }

  // --- In the packed graph ----------------------------------------------------------------------
  // Adds a node with one output, and returns the output.
  ValueId Emit(const std::string& name, std::string_view op, std::vector<ValueId> inputs,
               Attributes attributes = {}, std::string_view domain = "");
  ValueId Constant(Tensor t);
  ValueId Integers(const std::vector<int64_t>& values);
  ValueId offsets();
  ValueId positions();
  ValueId requests();
  // Sizes as a tensor of rank `rank` (0 or 1). They describe a value with R entries along the batch
  // if `rows`, else with 1.
  ValueId Sizes(const Dims& elements, int rank, DType dtype, bool rows);
  // [1, T, ...] as [T, ...] and back.
  ValueId DropBatch(ValueId id, const std::string& name);
  ValueId AddBatch(ValueId id, const std::string& name);

  // How the mask of an attention node was handled, worded to follow "masks of 6 attentions: ".
  void NoteMask(const std::string& what) { ++mask_notes_[what]; }
  // Each note, with the number of attention nodes that it applies to.
  const std::map<std::string, int>& mask_notes() const { return mask_notes_; }
  // Whether each element is the index of its sequence in the batch.
  bool NumbersSequences(ValueId id) { return patterns_.NumbersSequences(id); }
  // The rule by which the mask of an attention node adds to scores.
  StatusOr<MaskRule> ProvedMask(ValueId mask);
  // The biases that the rule adds to the scores of each key, [T], if its input is only 0 and 1.
  ValueId KeyMask(const MaskRule& rule);
  // The biases that the rule adds by distance, [heads, distances].
  StatusOr<ValueId> ByDistance(const MaskRule& rule, const Dim& heads);
  // Adds `input` to `marks`, a list of inputs with a condition, unless it is already there.
  static void Require(std::vector<int>& marks, int input) {
    if (std::find(marks.begin(), marks.end(), input) == marks.end()) marks.push_back(input);
  }

 private:
  ValueId Twin(ValueId mask) const;
  ValueId One(const Line& extent, bool rows);
  ValueId AddInput(const std::string& name, DType dtype, SymbolicShape shape, RaggedInput role);

  Graph& original_;
  Graph graph_;
  RaggedModel model_;
  std::vector<Form> forms_;
  std::vector<ValueId> packed_;
  std::vector<batch_axis::State> states_;
  ValueId offsets_ = kNoValue, positions_ = kNoValue, requests_ = kNoValue;
  ValueId tokens_size_ = kNoValue, rows_size_ = kNoValue;
  std::map<std::vector<int64_t>, ValueId> integers_;
  std::map<ValueId, StatusOr<MaskRule>> mask_rules_;
  MaskProof patterns_;
  std::map<std::pair<int, float>, ValueId> key_masks_;
  std::map<std::pair<std::vector<float>, int64_t>, ValueId> by_distance_;
  std::map<std::string, int> mask_notes_;
};

// The view of one node that its rule gets.
class Context : public analysis::NodeReader {
 public:
  Context(Packer& packer, const Node& node)
      : NodeReader(packer.original(), node), packer_(packer) {}

  Packer& packer() { return packer_; }
  const Form& in(int i) const { return has(i) ? packer_.form(id(i)) : absent_; }
  // All inputs from `first` on are fixed or absent.
  bool FixedFrom(int first) const;

  // The dimensions of input i: batch, length, numbers, and new symbols for unknown dimensions.
  StatusOr<Dims> DimsOf(int i) const override;
  // The known elements of input i, if it is fixed or sizes; else null.
  const Dims* Elements(int i) const override;
  ValueId packed(int i) { return packer_.packed(id(i)); }

  // Copies the node, with other inputs if given. All outputs get the form `form`.
  Status Copy(const Form& form) { return Copy(form, {}); }
  Status Copy(const Form& form, const std::map<int, ValueId>& inputs);
  // Sets the form of output 0, and its value in the packed graph.
  Status Result(const Form& form, ValueId packed) {
    packer_.Set(node().outputs[0], form, packed);
    return absl::OkStatus();
  }

 private:
  Packer& packer_;
  const Form absent_;
};

// Sets the outputs, or returns Unimplemented with the reason.
using Rule = Status (*)(Context&);
using RuleTable = std::map<std::string, Rule, std::less<>>;
// For operators whose result depends on data, or that have a ragged operator for work along the
// length. The axis maps of the operators cover the others.
void AddShapeRules(RuleTable& rules);
void AddIndexRules(RuleTable& rules);
void AddReductionRules(RuleTable& rules);
const RuleTable& PackingRules();
// Attention. Its mask may be unknown, because mask_proof.h can prove what it hides.
Status PackAttention(Context& context);
// For keys and values that come from another model (ops/ragged/source_attention.cc).
Status PackSourceAttention(Context& context);

// GatherND that computes x[arange(batch), index]. Input 1 holds both numbers, [batch, 2], and may
// be unknown. With batch_dims it holds the index alone, [batch, 1].
Status PickTokens(Context& context);

// Applies the operator's own axis map.
Status FollowAxes(Context& context);

// Errors that several rules return.
Status MixesTokens();
Status MixesSequences();
Status ComputesWithSizes();

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_PACKER_H_
