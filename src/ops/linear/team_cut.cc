#include "ops/linear/team_cut.h"

#include <algorithm>

#include "ops/linear/packed_gemm.h"

namespace chairlift {
namespace {

double Imbalance(int64_t pieces, int64_t width) {
  const int64_t most = (pieces + width - 1) / width;
  return static_cast<double>(most * width) / static_cast<double>(std::max<int64_t>(pieces, 1));
}

// The number of parts per worker, so that a worker whose core is shared takes fewer. No part is
// much under 200 µs, by arithmetic or by bytes of B. `packs_rows`: every part first copies its rows
// of A, which needs enough columns to be worth it.
int64_t PartsAWorker(int64_t m, int64_t n, int64_t k, int64_t parts, bool packs_rows) {
  constexpr double kMacsAMicrosecond = 5e4, kBytesAMicrosecond = 2e4;
  constexpr int64_t kMost = 4, kColumnsToPackFor = 192;
  const double b_elements = static_cast<double>(n) * static_cast<double>(k);
  const double us = std::max(static_cast<double>(m) * b_elements / kMacsAMicrosecond,
                             4 * b_elements / kBytesAMicrosecond);
  int64_t pieces = std::clamp<int64_t>(
      static_cast<int64_t>(us / (200.0 * static_cast<double>(parts))), 1, kMost);
  if (packs_rows) pieces = std::min(pieces, std::max<int64_t>(1, n / (parts * kColumnsToPackFor)));
  while (pieces > 1 && Imbalance(GemmPanels(n), parts * pieces) > 1.15) --pieces;
  return pieces;
}

}  // namespace

bool WorthSharing(int64_t m, int64_t n, int64_t k) {
  const double macs = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double b_elements = static_cast<double>(n) * static_cast<double>(k);
  return macs > 4e5 || b_elements > 4e4;
}

TeamCut CutForTeam(int64_t m, int64_t n, int64_t k, int width, bool packs_rows) {
  const int64_t row_blocks = (m + kGemmRowBlock - 1) / kGemmRowBlock;
  if (width <= 1 || !WorthSharing(m, n, k)) return {};
  const int64_t panels = GemmPanels(n);
  constexpr int64_t kTileRows = 14;
  const int64_t tiles = (m + kTileRows - 1) / kTileRows;
  const double by_columns = Imbalance(panels, width);
  if (by_columns <= 1.15 || by_columns <= Imbalance(tiles, width)) {
    const int64_t parts = width * PartsAWorker(m, n, k, row_blocks * width, packs_rows);
    return {static_cast<int>(row_blocks), static_cast<int>(std::min(panels, parts))};
  }
  const int64_t parts = std::max<int64_t>(row_blocks, width);
  return {static_cast<int>(std::min((parts + width - 1) / width * width, tiles)), 1};
}

TeamCut CutForTiles(int64_t m, int64_t n, int64_t k, int width) {
  constexpr int64_t kFaster = 6, kRowsAPart = 64;
  if (width <= 1 || !WorthSharing((m + kFaster - 1) / kFaster, n, k / 2)) return {};
  if (m >= width * kRowsAPart) {
    constexpr int64_t kRowsAgain = 256, kMost = 4;  // parts for a worker
    return {static_cast<int>(width * std::clamp<int64_t>(m / (width * kRowsAgain), 1, kMost)), 1};
  }
  return {1, static_cast<int>(std::min<int64_t>(width, GemmPanels(n)))};
}

}  // namespace chairlift
