// Suggestions for misspelt names.
#ifndef CHAIRLIFT_BASE_CLOSEST_H_
#define CHAIRLIFT_BASE_CLOSEST_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chairlift {

// The candidate with the fewest edits from `name`: insert, delete or replace a character, or swap
// two neighbours. Case is ignored, and '-' equals '_'. Nothing if it needs more edits than a third
// of the name's characters, or if `name` is over 64 characters. Time: |name| · |candidate| for each
// candidate of about the same size.
std::optional<std::string> Closest(std::string_view name, std::span<const std::string> candidates);

// "; did you mean 'identity'?": the closest, or else the first that is `name` and further words, as
// 'max_batch_size' of 'max_batch'. Empty if there is neither.
std::string DidYouMean(std::string_view name, std::span<const std::string> candidates);

// The end of an error about `name`, which is not one of `known`: a suggestion and the known names,
// as in "; did you mean 'identity'? (there are: 'identity', 'ocr')". A long list is cut, or left
// out if there is a suggestion.
std::string KnownNames(std::string_view name, std::span<const std::string> known);

// The names of a list of objects: NamesOf(outputs, &TensorSpec::name).
template <typename Things, typename Name>
std::vector<std::string> NamesOf(const Things& things, Name name) {
  std::vector<std::string> names;
  names.reserve(things.size());
  for (const auto& thing : things) names.emplace_back(std::invoke(name, thing));
  return names;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_CLOSEST_H_
