// Programs that run a model as a whole: a request is a graph of one node or, where it has many rows
// that are apart, of several, each a range of its rows.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SINGLE_NODE_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SINGLE_NODE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/programs/device_lanes.h"
#include "engine/programs/joined_requests.h"
#include "engine/programs/program.h"

namespace chairlift {

// What is common to them: requests of a task that run alone do so, the others together; where
// several fail together each is run again alone, so that nobody fails for another's data; a request
// that needs more memory than the worker has (Arena::limit) runs in halves where its rows are
// apart, and is refused elsewhere (kOutOfRange).
class SingleNodeProgram : public Program {
 public:
  StatusOr<ProgramView> View() override;
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override;
  TaskLanes lanes() const override { return lanes_ == nullptr ? TaskLanes() : lanes_->lanes(); }
  void Run(TaskRun& run, TaskDone done) override;

 protected:
  // A node has at most `largest_load` (ValidatedRequest::load()), but one row at least. `cell`: the
  // number of its one cell. `lanes`: of the device that its executables are for; null: they are the
  // CPU's, or whoever calls Run() is on a lane already.
  SingleNodeProgram(std::string_view kind, Signature signature, ServingPlan plan,
                    int32_t largest_load, int cell = 0,
                    std::unique_ptr<DeviceLanes> lanes = nullptr);

  // One run: what it goes through, and how its requests go in and come out.
  struct Batch {
    Executable* executable = nullptr;
    std::unique_ptr<JoinedRequests> requests;
  };
  // Of requests that share a batch, or of one; all live as long as the batch. Several are of equal
  // keys, and none of them runs alone.
  virtual StatusOr<Batch> Join(RequestSpan requests) = 0;
  // The model as it was imported, for requests that run alone.
  virtual StatusOr<Executable*> Original() = 0;
  // Whether rows are padded to RequestGraph::length().
  virtual bool pads() const { return false; }
  // Whether rows of one request may run apart. `request` brings several, and does not run alone.
  virtual bool RowsAreApart(const ValidatedRequest& request) const;

 private:
  struct Computed {
    std::vector<StatusOr<std::vector<NamedTensor>>> outputs;  // by request
    TaskResult times;
  };
  void RunHere(TaskRun& run, TaskDone done);
  Computed Compute(RequestSpan requests, TaskRun& run);
  Computed ComputeApart(RequestSpan requests, TaskRun& run);
  StatusOr<std::vector<NamedTensor>> ComputeInHalves(const ValidatedRequest& request, TaskRun& run,
                                                     TaskResult& times);
  StatusOr<Batch> BatchOf(RequestSpan requests);
  bool MayRunInParts(const ValidatedRequest& request) const;
  Status TooLarge(const ValidatedRequest& request, const Status& why) const;

  const int32_t largest_load_;
  const int cell_;
  const std::unique_ptr<DeviceLanes> lanes_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SINGLE_NODE_H_
