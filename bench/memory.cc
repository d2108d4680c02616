// Compares the memory for one model's intermediates, request after request: our arena, a caching
// allocator, the paper's chunks, and the minimum for each length.
//
//   memory MODEL SHAPES.txt      one length per line, of one sequence; the model must be able to
//   run
//                                ragged
//   < one line of JSON: for each of the four, footprint after each request (mean, largest, last),
//     total bytes taken from the system; the minimum; seconds spent planning and computing
//
// TurboTransformers (PPoPP'21) §4.2. All four place the records that the plan traced from the
// graph, in the order of the steps:
//   arena      one chunk, greedy by size; grown to the requested size, then released
//              (runtime/arena.cc)
//   chunks     Algorithm 1: greedy by size into chunks of 2 MiB or 1.2 times the record; chunks
//   that
//              a request does not use are released
//   caching    a block per record from a free list of its size class, kept for ever, as in
//              frameworks that do not know the graph
//   least      greedy-by-size offsets for this request alone (GSOC)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/programs/loading_model.h"
#include "engine/programs/packing.h"
#include "engine/programs/sequence_signature.h"
#include "graph/onnx/import.h"
#include "graph/ragged/ragged.h"
#include "runtime/memory_planner.h"

namespace chairlift {
namespace {

using Records = std::vector<MemoryRecord>;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

struct Footprint {
  double sum = 0;
  size_t largest = 0, last = 0, requests = 0;
  size_t taken = 0;  // total bytes taken from the system

  void Note(size_t bytes) {
    sum += static_cast<double>(bytes);
    largest = std::max(largest, bytes);
    last = bytes;
    ++requests;
  }
  std::string Json() const {
    return fmt::format(R"({{"mean": {:.0f}, "largest": {}, "last": {}, "taken": {}}})",
                       sum / static_cast<double>(requests), largest, last, taken);
  }
};

class Chunks {
 public:
  void Serve(const Records& records) {
    for (Chunk& chunk : chunks_) chunk.placed.clear();
    std::vector<size_t> order(records.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return records[a].bytes > records[b].bytes; });
    for (const size_t i : order) {
      if (records[i].bytes > 0) Place(records[i]);
    }
    chunks_.erase(std::remove_if(chunks_.begin(), chunks_.end(),
                                 [](const Chunk& chunk) { return chunk.placed.empty(); }),
                  chunks_.end());
    size_t bytes = 0;
    for (const Chunk& chunk : chunks_) bytes += chunk.bytes;
    footprint_.Note(bytes);
  }
  const Footprint& footprint() const { return footprint_; }

 private:
  struct Chunk {
    size_t bytes;
    std::vector<PlacedRecord> placed;
  };

  void Place(const MemoryRecord& record) {
    for (Chunk& chunk : chunks_) {
      const size_t offset = PlanMemory({&record, 1}, chunk.placed).offsets[0];
      if (offset + RoundUp(record.bytes, kArenaAlignment) > chunk.bytes) continue;
      chunk.placed.push_back({record, offset});
      return;
    }
    const size_t bytes = std::max<size_t>(size_t{2} << 20, record.bytes * 6 / 5);
    chunks_.push_back({bytes, {{record, 0}}});
    footprint_.taken += bytes;
  }

  std::vector<Chunk> chunks_;
  Footprint footprint_;
};

class Caching {
 public:
  void Serve(const Records& records) {
    std::multimap<int, size_t> ends;  // blocks in use, by their last step
    std::vector<const MemoryRecord*> order;
    for (const MemoryRecord& record : records) {
      if (record.bytes > 0) order.push_back(&record);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](auto* a, auto* b) { return a->first_step < b->first_step; });
    for (const MemoryRecord* record : order) {
      while (!ends.empty() && ends.begin()->first < record->first_step) {
        free_.insert(ends.begin()->second);
        ends.erase(ends.begin());
      }
      ends.emplace(record->last_step, Take(record->bytes));
    }
    for (const auto& [step, bytes] : ends) free_.insert(bytes);
    footprint_.Note(held_);
  }
  const Footprint& footprint() const { return footprint_; }

 private:
  // Like PyTorch's allocator: blocks in multiples of 512 bytes; small requests take only small
  // blocks, large ones may take a block of up to twice their size.
  size_t Take(size_t bytes) {
    const size_t rounded = RoundUp(bytes, 512);
    const auto found = free_.lower_bound(rounded);
    if (found != free_.end() && *found <= 2 * rounded) {
      const size_t block = *found;
      free_.erase(found);
      return block;
    }
    held_ += rounded;
    footprint_.taken += rounded;
    return rounded;
  }

  std::multiset<size_t> free_;
  size_t held_ = 0;
  Footprint footprint_;
};

Status Run(const std::string& path, const std::string& lengths) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(path));
  CHAIRLIFT_ASSIGN_OR_RETURN(RaggedModel ragged, MakeRagged(imported.graph));
  Signature signature = SignatureOf(imported.graph);
  signature.sequences = SequencesOf(ragged, signature.inputs.size());
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto executable,
                             Executable::Create(std::move(ragged.graph), {}));

  Footprint arena_footprint, least;
  Chunks chunks;
  Caching caching;
  Arena arena, staging;
  SoloTeam team(0);
  std::chrono::duration<double> planning{0}, computing{0};
  std::ifstream in(lengths);
  for (int length = 0; in >> length;) {
    const ValidatedRequest request = OnesRequest(signature, 1, length);
    const ValidatedRequest* const requests[] = {&request};
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                               Packing(signature, ragged.inputs, requests).Inputs(staging));
    std::vector<Shape> shapes;
    for (const Tensor& input : inputs) shapes.push_back(input.shape());
    const auto start = std::chrono::steady_clock::now();
    CHAIRLIFT_ASSIGN_OR_RETURN(const PlanStats stats, executable->Prepare(shapes, 1));
    const auto planned = std::chrono::steady_clock::now();
    const size_t before = arena.held_bytes();
    CHAIRLIFT_RETURN_IF_ERROR(executable->Run(inputs, team, 0, arena).status());
    computing += std::chrono::steady_clock::now() - planned;
    planning += planned - start;
    arena_footprint.taken += arena.held_bytes() - std::min(before, arena.held_bytes());
    arena_footprint.Note(arena.held_bytes());
    least.Note(PlanMemory(stats.records).arena_bytes);
    chunks.Serve(stats.records);
    caching.Serve(stats.records);
  }
  if (least.requests == 0) return InvalidArgument("{} holds no lengths", lengths);
  fmt::print(
      R"({{"requests": {}, "planning_s": {:.6f}, "computing_s": {:.6f}, "least": {}, "arena": {}, )"
      R"("chunks": {}, "caching": {}}})"
      "\n",
      least.requests, planning.count(), computing.count(), least.Json(), arena_footprint.Json(),
      chunks.footprint().Json(), caching.footprint().Json());
  return absl::OkStatus();
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status =
      argc == 3 ? chairlift::Run(argv[1], argv[2])
                : chairlift::InvalidArgument("usage: {} MODEL.onnx SHAPES.txt", argv[0]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", chairlift::Message(status).c_str());
  return 1;
}
