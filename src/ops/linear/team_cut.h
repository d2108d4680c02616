// How a product is shared out to a team of workers.
#ifndef CHAIRLIFT_OPS_LINEAR_TEAM_CUT_H_
#define CHAIRLIFT_OPS_LINEAR_TEAM_CUT_H_

#include <cstdint>

namespace chairlift {

// Whether several workers finish a product of m rows and n columns sooner than one does: about 8 µs
// of work, by arithmetic or by bytes of B.
bool WorthSharing(int64_t m, int64_t n, int64_t k);

// Into parts of rows times parts of columns.
struct TeamCut {
  int row_parts = 1;
  int column_parts = 1;
  int parts() const { return row_parts * column_parts; }
};

// For a product of single precision by packed panels, for `width` workers; `packs_rows` as
// PacksRows() says. Columns first: each worker then reads its own part of B once. Rows where there
// are too few panels to share evenly.
TeamCut CutForTeam(int64_t m, int64_t n, int64_t k, int width, bool packs_rows);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_TEAM_CUT_H_
