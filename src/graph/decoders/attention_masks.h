// What the masks of a decoder's attention hide and add, by what was followed of them.
#ifndef CHAIRLIFT_GRAPH_DECODERS_ATTENTION_MASKS_H_
#define CHAIRLIFT_GRAPH_DECODERS_ATTENTION_MASKS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/decoders/pattern.h"
#include "graph/ir.h"

namespace chairlift::decoders {

// Errors are Unimplemented, and say what the mask does instead.
class AttentionMasks {
 public:
  // `why`: by value, why it could not be followed. `total`: how many keys there are. `position`:
  // the places of the new tokens among them, along an axis. All outlive this object.
  AttentionMasks(Graph& graph, PatternReader& reader, const std::vector<std::string>& why,
                 const Line& total, Line (*position)(int axis))
      : graph_(graph), reader_(reader), why_(why), total_(total), position_(position) {}

  // Whether the mask adds 0 to all. `keys`: how many columns it must have, where that counts.
  Status CheckHidesNothing(ValueId mask, const std::optional<Line>& keys = std::nullopt) const;
  // Whether it hides exactly the keys behind each query, and adds 0 to others.
  Status CheckCausal(ValueId mask) const;

  // What it adds by distance, a new constant: [heads, 2·reach + 1], that of key = query in the
  // middle. `causal`: whether it hides later keys, and is to hide no others; if not, it hides none.
  StatusOr<ValueId> BiasOf(ValueId mask, const Node& attention, bool causal);
  // What it adds that grows with the key's place at a slope of each head. Softmax takes no notice
  // of what is the same for all keys of a query, so that it may be taken to be 0 at the query's
  // own: a bias by distance, as BiasOf's. `causal`: later keys are hidden already, and it is to
  // hide none. kNoValue where it adds the same to all.
  StatusOr<ValueId> SlopesBias(ValueId mask, const Node& attention, bool causal);

 private:
  Status CheckHidesNothing(ValueId mask, Pattern pattern, const std::optional<Line>& keys) const;
  Status CheckCausal(ValueId mask, Pattern pattern) const;
  Status CheckStaysHidden(const Pattern& pattern, int64_t times) const;
  // Heads of queries, for a mask that has one or as many.
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
