#include "engine/request.h"

#include <algorithm>

namespace chairlift {

std::vector<InferPart> PartStream::Named(const std::vector<ReadyPart>& parts) const {
  std::vector<InferPart> named;
  std::vector<int64_t> counts;  // of time steps
  for (const ReadyPart& ready : parts) {
    const AnswerPart& part = ready.part;
    // The step's other outputs came just before, if at all.
    size_t at = named.size();
    while (at > 0 && !(named[at - 1].row == part.row && named[at - 1].first == part.first &&
                       counts[at - 1] == part.count)) {
      --at;
    }
    if (at == 0) {
      named.push_back({.row = part.row, .first = part.first});
      counts.push_back(part.count);
      at = named.size();
    }
    const std::string& name = model->signature().outputs[part.output].name;
    named[at - 1].outputs.push_back({name, ready.Entries()});
  }
  return named;
}

}  // namespace chairlift
