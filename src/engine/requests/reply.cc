#include "engine/requests/reply.h"

#include <algorithm>
#include <cstdint>

namespace chairlift {

std::vector<InferPart> Grouped(std::span<const ReadyPart> parts,
                               std::span<const std::string> names) {
  std::vector<InferPart> grouped;
  std::vector<int64_t> counts;  // number of time steps
  for (const ReadyPart& ready : parts) {
    const AnswerPart& part = ready.part;
    const std::string& own = names[static_cast<size_t>(part.output)];
    // Together with the step's other outputs, but never before earlier parts of the same output.
    size_t place = grouped.size();
    for (size_t at = grouped.size(); at-- > 0;) {
      const InferPart& other = grouped[at];
      if (other.row != part.row) continue;
      if (std::any_of(other.outputs.begin(), other.outputs.end(),
                      [&](const NamedTensor& output) { return output.name == own; })) {
        break;
      }
      if (other.first == part.first && counts[at] == part.count) place = at;
    }
    if (place == grouped.size()) {
      grouped.push_back({.row = part.row, .first = part.first});
      counts.push_back(part.count);
    }
    grouped[place].outputs.push_back({own, ready.Entries()});
  }
  return grouped;
}

}  // namespace chairlift
