// How a product is distributed over a team of workers.
#ifndef CHAIRLIFT_OPS_LINEAR_TEAM_CUT_H_
#define CHAIRLIFT_OPS_LINEAR_TEAM_CUT_H_

#include <cstdint>

namespace chairlift {

// Whether several workers finish a product of m rows and n columns sooner than one. They do from
// about 8 µs of work on, by arithmetic or by bytes of B.
bool WorthSharing(int64_t m, int64_t n, int64_t k);

// C is divided into row_parts · column_parts parts.
struct TeamCut {
  int row_parts = 1;
  int column_parts = 1;
  int parts() const { return row_parts * column_parts; }
};

// For a single-precision product by packed panels, for `width` workers; `packs_rows` as in
// PacksRows(). Divides columns first: each worker then reads its own part of B once. Divides rows
// if there are too few panels to distribute evenly.
TeamCut CutForTeam(int64_t m, int64_t n, int64_t k, int width, bool packs_rows);

// For a product by bfloat16 tiles. Divides rows if there are enough, because every part rounds all
// of its rows of A.
TeamCut CutForTiles(int64_t m, int64_t n, int64_t k, int width);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_TEAM_CUT_H_
