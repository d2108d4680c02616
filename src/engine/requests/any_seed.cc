#include "engine/requests/any_seed.h"

#include <random>

namespace chairlift {

int64_t AnySeed() {
  std::random_device device;
  return static_cast<int64_t>(uint64_t{device()} << 32 | device());
}

}  // namespace chairlift
