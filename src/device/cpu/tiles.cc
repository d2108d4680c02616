#include "device/cpu/tiles.h"

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace chairlift {

#if defined(__x86_64__) && defined(__linux__)
namespace {

// The tile registers' number among the processor's state components.
constexpr int kTileConfig = 17, kTileData = 18;

bool ProcessorHasTiles() {
  constexpr uint32_t kOsXsave = 1U << 27, kAmxBf16 = 1U << 22, kAmxTile = 1U << 24,
                     kAmxInt8 = 1U << 25;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr uint32_t kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  return (d & kAll) == kAll;
}

// Whether the system saves the tiles of threads.
bool SystemKeepsTiles() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr uint32_t kBoth = (1U << kTileConfig) | (1U << kTileData);
  return (low & kBoth) == kBoth;
}

bool AskPermission() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace

bool GrantTiles() {
  static const bool granted = ProcessorHasTiles() && SystemKeepsTiles() && AskPermission();
  return granted;
}

TileScope::TileScope() {
  static constexpr TileConfig kConfig;
  asm volatile("ldtilecfg %0" ::"m"(kConfig));
}

TileScope::~TileScope() { asm volatile("tilerelease"); }

#else

bool GrantTiles() { return false; }
TileScope::TileScope() = default;
TileScope::~TileScope() = default;

#endif

}  // namespace chairlift
