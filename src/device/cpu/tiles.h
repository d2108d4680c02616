// AMX, the processor's matrix tiles: whether this process may use them, and their configuration.
#ifndef CHAIRLIFT_DEVICE_CPU_TILES_H_
#define CHAIRLIFT_DEVICE_CPU_TILES_H_

namespace chairlift {

// Whether the processor has bfloat16 and 8-bit tiles and the system lets this process use them. The
// first call asks Linux for the permission, which then holds for all threads.
bool GrantTiles();

// Configures the calling thread's eight tiles as 16 rows of 64 bytes, for its lifetime. Afterwards
// the thread has no tile state, so that its context switches stay cheap. Requires GrantTiles().
// Scopes do not nest.
class TileScope {
 public:
  TileScope();
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_TILES_H_
