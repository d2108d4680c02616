// Writes known values (pattern.h) as operators on the shape of one input.
#ifndef CHAIRLIFT_GRAPH_DECODERS_KNOWN_VALUES_H_
#define CHAIRLIFT_GRAPH_DECODERS_KNOWN_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/analysis/pattern.h"
#include "graph/ir.h"

namespace chairlift::decoders {

using analysis::Line;
using analysis::Pattern;
using analysis::PatternReader;
using analysis::Size;

// Adds nodes behind those of the graph, which with `reader` must outlive it.
class KnownValues {
 public:
  // `input`: [batch, length, ...], whose length is `length`. `position`: that of a token along an
  // axis with one entry per token.
  KnownValues(Graph& graph, const PatternReader& reader, ValueId input, const char* length,
              Line (*position)(int axis))
      : graph_(graph), reader_(reader), input_(input), length_(length), position_(position) {}

  // The value without a past, if it is known. Otherwise the value itself; also for slopes, which
  // are computed where they are read. Unimplemented says what else it depends on.
  StatusOr<ValueId> Canonical(ValueId id);

 private:
  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
  ValueId Integers(const std::vector<int64_t>& values);
  ValueId SizeOfInput(int axis);
  StatusOr<ValueId> MakeCanonical(const Value& value, const Pattern& pattern);
  StatusOr<ValueId> AsType(ValueId id, DType dtype);
  StatusOr<ValueId> Sizes(const std::vector<Line>& elements);
  StatusOr<ValueId> Positions(DType dtype, const Pattern& pattern);

  Graph& graph_;
  const PatternReader& reader_;
  const ValueId input_;
  const char* const length_;
  Line (*const position_)(int axis);
  std::map<ValueId, ValueId> canonical_;
};

}  // namespace chairlift::decoders

#endif  // CHAIRLIFT_GRAPH_DECODERS_KNOWN_VALUES_H_
