#include "engine/programs/model_calls.h"

#include <atomic>

namespace chairlift {

uint64_t NextTurn() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace chairlift
