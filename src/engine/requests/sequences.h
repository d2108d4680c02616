// Sequences of one model: clients that send their input in chunks, and whose state stays here.
//
// A chunk takes the state by inputs that the client does not send, and leaves it in outputs that
// the client does not see (ModelConfig::sequence_state). Chunks of one sequence run one after the
// other; those of different sequences share batches like any other requests. A chunk that fails
// changes nothing, not even by starting or ending its sequence: it may be sent again.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_SEQUENCES_H_
#define CHAIRLIFT_ENGINE_REQUESTS_SEQUENCES_H_

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "chairlift/engine.h"
#include "engine/requests/request_rules.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Thread-safe.
class Sequences : public std::enable_shared_from_this<Sequences> {
 public:
  // Chunks of one sequence that may wait for the one that runs.
  static constexpr size_t kMaxWaiting = 64;
  // The state that a chunk's inputs still lack.
  struct MissingState {
    // InvalidArgument where the chunk brings some itself, or its inputs do not say how large it is.
    std::function<Status(InferRequest&)> add;  // null: it is no chunk of a sequence
    // That add() makes, zeros for a sequence that starts: its time is in proportion to them. What
    // the sequence has kept is handed over.
    int64_t new_bytes = 0;
  };
  // Runs a chunk, to which the state is to be added first; what Submit() answers comes from it.
  using Run = std::function<RequestId(InferRequest, MissingState, InferCallback)>;

  // InvalidArgument where the configuration names what the model does not have, or pairs tensors of
  // different types or shapes. `clock` must outlive it.
  // Of `rules` what concerns states.
  static StatusOr<std::shared_ptr<Sequences>> Create(const ModelConfig& config,
                                                     const Signature& signature,
                                                     const Clock& clock = Clock::Steady(),
                                                     const RequestRules& rules = {});

  // `callback` runs exactly once, where a refused request's does. The id is 0 where the chunk waits
  // for an earlier one; such a chunk cannot be cancelled.
  RequestId Submit(InferRequest request, InferCallback callback, const Run& run);

  // InvalidArgument where a request of no sequence lacks some of the state.
  Status CheckSent(const InferRequest& request) const;

  // Live ones, those that have been idle too long not counted.
  int size();

 private:
  struct State {
    int input = 0;
    int output = 0;
    std::string input_name;
    std::string output_name;
    Tensor initial = {};  // absent: zeros
    bool shown = false;   // clients get it as any output
  };
  struct Chunk {
    InferRequest request;
    InferCallback callback;
    Run run;
  };
  struct Sequence {
    bool live = false;  // a chunk that started it has succeeded, and none that ends it since
    std::vector<Tensor> state;  // by states_; of a live one
    bool running = false;
    bool ending = false;  // the newest chunk that runs or waits is to end it
    std::deque<Chunk> waiting;
    TimePoint used;
    std::list<std::string>::iterator place;  // in idle_, while nothing runs
  };
  // Of the chunk that runs.
  struct Running {
    std::string name;
    bool end = false;
    std::vector<bool> asked;  // by states_: whether the client asked for it by name
    InferCallback callback;
  };
  using Lock = std::unique_lock<std::mutex>;

  Sequences(const ModelConfig& config, const Signature& signature, const Clock& clock)
      : config_(config), signature_(signature), clock_(clock) {}
  void Expire();
  // Of a sequence that starts.
  StatusOr<Tensor> First(const State& state, const InferRequest& request) const;
  // `state` by states_, or what a sequence starts with where that is empty.
  Status Bring(const std::vector<Tensor>& state, InferRequest& request) const;
  // That the chunk's other inputs give to a state. InvalidArgument: more than memory can hold.
  StatusOr<Shape> ShapeOf(const State& state, const InferRequest& request) const;
  // Of zeros that stand for what `state` lacks; 0 where a shape is refused.
  int64_t NewBytes(const std::vector<Tensor>& state, const InferRequest& request) const;
  // Passes on all but the states that were not asked for.
  PartsCallback WithoutState(PartsCallback on_parts, const std::vector<bool>& asked) const;
  Status NotLive(const std::string& name) const;
  RequestId Start(Chunk chunk);
  void Ended(const Running& chunk, StatusOr<InferResponse> answer);
  // The next chunk to run. Chunks before it that go on with a sequence which is not live are moved
  // to `refused`.
  std::optional<Chunk> Next(const std::string& name, std::vector<Chunk>& refused);

  const ModelConfig config_;
  const Signature signature_;
  const Clock& clock_;
  std::vector<State> states_;
  std::mutex mutex_;
  // Guarded by mutex_.
  absl::flat_hash_map<std::string, Sequence> sequences_;
  std::list<std::string> idle_;  // the longest idle first
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_SEQUENCES_H_
