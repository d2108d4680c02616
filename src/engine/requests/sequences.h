// Sequences of one model: clients send their input in chunks, and their state stays on the server.
//
// The state is passed in inputs that the client does not send and outputs that it does not see
// (ModelConfig::sequence_state). Chunks of one sequence run one after the other; those of different
// sequences share batches like other requests. A chunk that fails changes nothing, and does not
// start or end its sequence either: it may be sent again.
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
  // Chunks of one sequence that may wait for the running one.
  static constexpr size_t kMaxWaiting = 64;
  // The state that a chunk's inputs still lack.
  struct MissingState {
    // InvalidArgument if the chunk contains state itself, or if its inputs do not determine the
    // state's size.
    std::function<Status(InferRequest&)> add;  // null: not a chunk of a sequence
    // Bytes of zeros that add() creates, for a sequence that starts: its time is in proportion.
    // Kept state is moved.
    int64_t new_bytes = 0;
  };
  // Runs a chunk, after the state has been added; its result is that of Submit().
  using Run = std::function<RequestId(InferRequest, MissingState, InferCallback)>;

  // InvalidArgument if the configuration names something that the model does not have, or pairs
  // tensors of different types or shapes. `clock` must outlive it. Uses the parts of `rules` about
  // states.
  static StatusOr<std::shared_ptr<Sequences>> Create(const ModelConfig& config,
                                                     const Signature& signature,
                                                     const Clock& clock = Clock::Steady(),
                                                     const RequestRules& rules = {});

  // `callback` runs exactly once, on the same thread as for a refused request. The id is 0 if the
  // chunk waits for an earlier one; such a chunk cannot be cancelled.
  RequestId Submit(InferRequest request, InferCallback callback, const Run& run);

  // InvalidArgument if a request without a sequence lacks some of the state.
  Status CheckSent(const InferRequest& request) const;

  // The number of live ones, without those that have been idle too long.
  int size();

 private:
  struct State {
    int input = 0;
    int output = 0;
    std::string input_name;
    std::string output_name;
    Tensor initial = {};  // absent: zeros
    bool shown = false;   // clients get it like any output
  };
  struct Chunk {
    InferRequest request;
    InferCallback callback;
    Run run;
  };
  struct Sequence {
    bool live = false;  // a chunk that started it has succeeded, and none that ends it since
    std::vector<Tensor> state;  // by states_; for a live one
    bool running = false;
    bool ending = false;  // the newest chunk that runs or waits ends it
    std::deque<Chunk> waiting;
    TimePoint used;
    std::list<std::string>::iterator place;  // in idle_, while nothing runs
  };
  // The running chunk.
  struct Running {
    std::string name;
    bool end = false;
    std::vector<bool> asked;  // by states_: whether the client requested it by name
    InferCallback callback;
  };
  using Lock = std::unique_lock<std::mutex>;

  Sequences(const ModelConfig& config, const Signature& signature, const Clock& clock)
      : config_(config), signature_(signature), clock_(clock) {}
  void Expire();
  // For a sequence that starts.
  StatusOr<Tensor> First(const State& state, const InferRequest& request) const;
  // `state` by states_; if empty, the initial state.
  Status Bring(const std::vector<Tensor>& state, InferRequest& request) const;
  // The shape of a state according to the chunk's other inputs. InvalidArgument: larger than
  // memory.
  StatusOr<Shape> ShapeOf(const State& state, const InferRequest& request) const;
  // Bytes of the zeros for what `state` lacks; 0 if a shape is refused.
  int64_t NewBytes(const std::vector<Tensor>& state, const InferRequest& request) const;
  // Passes on everything except states that were not requested.
  PartsCallback WithoutState(PartsCallback on_parts, const std::vector<bool>& asked) const;
  Status NotLive(const std::string& name) const;
  RequestId Start(Chunk chunk);
  void Ended(const Running& chunk, StatusOr<InferResponse> answer);
  // The next chunk to run. Earlier chunks that continue a sequence which is not live are moved to
  // `refused`.
  std::optional<Chunk> Next(const std::string& name, std::vector<Chunk>& refused);

  const ModelConfig config_;
  const Signature signature_;
  const Clock& clock_;
  std::vector<State> states_;
  std::mutex mutex_;
  // Guarded by mutex_.
  absl::flat_hash_map<std::string, Sequence> sequences_;
  std::list<std::string> idle_;  // longest idle first
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_SEQUENCES_H_
