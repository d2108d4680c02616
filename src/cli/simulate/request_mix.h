// A simulation's requests and the costs of its cells, read from files.
#ifndef CHAIRLIFT_CLI_SIMULATE_REQUEST_MIX_H_
#define CHAIRLIFT_CLI_SIMULATE_REQUEST_MIX_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "batching/cell_graph.h"
#include "batching/length_costs.h"

namespace chairlift {

// The distinct requests and how often each occurs.
struct RequestMix {
  std::vector<std::string> cells;  // names, by cell type
  std::vector<CellGraph> graphs;
  std::vector<uint64_t> cumulative;   // cumulative counts of graphs[0..i]
  std::vector<int32_t> answers = {};  // by graph, in tokens (Workload::answers)

  int32_t Sample(std::mt19937_64& random) const;
  double mean_nodes() const;
  void Add(CellGraph graph, uint64_t count);
};

// A JSON histogram of lengths, {"histogram": {"17": 41}}; lengths over `max_length` are omitted (0:
// no limit).
using LengthCounts = std::map<int, uint64_t>;
StatusOr<LengthCounts> ReadLengths(const std::filesystem::path& path, int max_length);
// "2-100": each length with equal frequency.
StatusOr<LengthCounts> UniformLengths(const std::string& range);

// Chains of `step` cells.
RequestMix ChainMix(const LengthCounts& lengths);
// Sequences that an encoder runs as a whole: each is one row with a length, of a `sequence` cell.
// `packed`: as many rows of a `token` cell.
RequestMix EncoderMix(const LengthCounts& lengths, bool packed);
// One row each through `stage1`, `stage2`, …; for policies that need whole requests, one node of a
// `whole` cell. `leaving` of 100 requests exit after stage `exit` (the last stage: no exit); whole
// requests cannot exit.
RequestMix StagesMix(int stages, bool whole, int exit = 0, int leaving = 0);
// A chain of `encoder` cells, then one of `decoder` cells. `lengths` is a JSON histogram of pairs,
// {"joint": {"17:19": 3}}; pairs with a zero are omitted.
StatusOr<RequestMix> Seq2SeqMix(const std::filesystem::path& lengths, int max_length);
// Binary trees of `leaf` and `internal` cells, one per line: '.' is a leaf, "(ab)" an inner node.
StatusOr<RequestMix> TreeMix(const std::filesystem::path& trees);
// Requests that generate: a prompt of `step` cells, and an answer. `count` pairs of lengths are
// drawn, all equally likely. Lengths are in the format of LengthHistogram::From(). A request's
// state is its number of tokens.
StatusOr<RequestMix> GenerationMix(const std::string& prompts, const std::string& answers,
                                   int64_t count, uint64_t seed);
// Complete binary trees with 2^depth leaves.
RequestMix CompleteTreeMix(int depth);

// A CSV file with lines "cell,rows,microseconds" or "cell,rows,length,microseconds", or a JSON file
// {"cell": {"rows": microseconds}}. Every cell of the mix must be included. 0 rows: as in
// LengthCosts.
StatusOr<LengthCosts> ReadCosts(const std::filesystem::path& path,
                                const std::vector<std::string>& cells);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_SIMULATE_REQUEST_MIX_H_
