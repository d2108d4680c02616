// Finds where a text that arrives piece by piece ends at a stop string.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_STOP_TEXT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_STOP_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chairlift {

// The result does not depend on how the text is divided into pieces. Not thread-safe.
class StopText {
 public:
  // None may be empty.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the text so far that is certainly before any stop string and was not returned before.
  // The stop string that is complete first counts; among those that end together, the longest.
  std::string Append(std::string_view text);
  // A stop string was found: the text ended before it.
  bool stopped() const { return stopped_; }
  // No more text comes: returns what was held back.
  std::string Rest() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // possibly the start of a stop string
  bool stopped_ = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_STOP_TEXT_H_
