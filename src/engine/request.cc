#include "engine/request.h"

#include <algorithm>

namespace chairlift {

std::vector<InferPart> PartStream::Named(const std::vector<ReadyPart>& parts) const {
  std::vector<InferPart> named;
  std::vector<int64_t> counts;  // of time steps
  for (const ReadyPart& ready : parts) {
    const AnswerPart& part = ready.part;
    const std::string& name = model->signature().outputs[part.output].name;
    // Beside the step's other outputs, but never before what came earlier of its own.
    size_t place = named.size();
    for (size_t at = named.size(); at-- > 0;) {
      const InferPart& other = named[at];
      if (other.row != part.row) continue;
      if (std::any_of(other.outputs.begin(), other.outputs.end(),
                      [&](const NamedTensor& output) { return output.name == name; })) {
        break;
      }
      if (other.first == part.first && counts[at] == part.count) place = at;
    }
    if (place == named.size()) {
      named.push_back({.row = part.row, .first = part.first});
      counts.push_back(part.count);
    }
    named[place].outputs.push_back({name, ready.Entries()});
  }
  return named;
}

}  // namespace chairlift
