// Finds what the masks of a decoder's attention hide and add, from their patterns.
#ifndef CHAIRLIFT_GRAPH_DECODERS_ATTENTION_MASKS_H_
#define CHAIRLIFT_GRAPH_DECODERS_ATTENTION_MASKS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/analysis/pattern.h"
#include "graph/ir.h"

namespace chairlift::decoders {

using analysis::kReach;
using analysis::Line;
using analysis::Pattern;
using analysis::PatternReader;
using analysis::Size;

// Errors are Unimplemented, and say what the mask does instead.
class AttentionMasks {
 public:
  // `why`: by value, why it could not be followed. `total`: the number of keys. `position`: the
  // positions of the new tokens among the keys, along an axis. All must outlive this object.
  AttentionMasks(Graph& graph, PatternReader& reader, const std::vector<std::string>& why,
                 const Line& total, Line (*position)(int axis))
      : graph_(graph), reader_(reader), why_(why), total_(total), position_(position) {}

  // Checks that the mask adds 0 everywhere. `keys`: its required number of columns, if that
  // matters.
  Status CheckHidesNothing(ValueId mask, const std::optional<Line>& keys = std::nullopt) const;
  // Checks that it hides exactly the keys after each query, and adds 0 to others.
  Status CheckCausal(ValueId mask) const;

  // The bias that it adds by distance, as a new constant [heads, 2·reach + 1] with key = query in
  // the middle. `causal`: whether it must hide later keys and no others; if false, it must hide
  // none.
  StatusOr<ValueId> BiasOf(ValueId mask, const Node& attention, bool causal);
  // A bias that grows with the key's position at a slope for each head. A value that is the same
  // for all keys of a query does not change the softmax, so the bias may be set to 0 at the query's
  // own position. The result is a bias by distance, as in BiasOf. `causal`: later keys are hidden
  // already, and the mask must hide none. kNoValue if it adds the same to all keys.
  StatusOr<ValueId> SlopesBias(ValueId mask, const Node& attention, bool causal);

 private:
  Status CheckHidesNothing(ValueId mask, Pattern pattern, const std::optional<Line>& keys) const;
  Status CheckCausal(ValueId mask, Pattern pattern) const;
  Status CheckStaysHidden(const Pattern& pattern, int64_t times) const;
  // The number of query heads, for a mask that has one or as many.
  StatusOr<int64_t> HeadsOf(const Node& attention, int64_t of_mask) const;

  Graph& graph_;
  PatternReader& reader_;
  const std::vector<std::string>& why_;
  const Line& total_;
  Line (*const position_)(int axis);
  std::map<std::pair<ValueId, bool>, ValueId> biases_;  // by mask, and whether it is causal
};

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_ATTENTION_MASKS_H_
