// Where a text that comes piece by piece ends at a stop string.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_STOP_TEXT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_STOP_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chairlift {

// What it gives does not depend on how the text is cut into pieces. Not thread-safe.
class StopText {
 public:
  // None of them empty.
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What of the text so far is certain to be before any stop string, and was not given yet. The
  // stop string that is complete first counts; of those that end together, the longest.
  std::string Append(std::string_view text);
  // One has been met: the text ended before it.
  bool stopped() const { return stopped_; }
  // No more text comes: what was held back.
  std::string Rest() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_STOP_TEXT_H_
