// A model made of cells, as `cells` and `unfold` of its model.yaml say (docs/concepts/cells.md).
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_MANIFEST_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_MANIFEST_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/yaml_value.h"
#include "chairlift/status.h"
#include "runtime/executable.h"

namespace chairlift {

struct CellFile {
  std::string name;
  std::string file;        // in the version's folder
  int max_batch_size = 0;  // rows in a task; 0: as the model's
  std::optional<int> priority = {};
};

// The names below are of a cell's inputs and outputs, but for `request` and `name`, which are of
// the model's.
struct TokensFeed {
  std::string input;
  std::string request;
};
struct StateFeed {
  std::string input;
  std::string output;
  // What the first step reads: the model's input of that name (of a decoder: the encoder's output);
  // empty: zeros.
  std::string initial;
};
struct CollectedOutput {
  std::string name;
  std::string output;  // of a tree: a state, where no head is meant
  bool all = false;    // of every step or node, not only of the last step or the root
};
// A cell that reads what the last step, or every one, left (of a tree: the root, or every node).
struct HeadCell {
  std::string cell;
  bool all = false;
  std::map<std::string, std::string> inputs;  // → the output, or the tree's state, that it reads
  std::vector<CollectedOutput> outputs;
};

// One cell over the tokens of a sequence, each step reading what the one before left.
struct StepsUnfold {
  std::string cell;
  TokensFeed tokens;
  std::vector<StateFeed> states;
};
struct ChainUnfold {
  StepsUnfold steps;
  std::string lengths;  // the model's input with each row's length; empty: all are full
  std::vector<CollectedOutput> outputs;
  std::optional<HeadCell> head;
};
// An encoder, then a decoder that reads its own last token until it says `eos`.
struct Seq2SeqUnfold {
  StepsUnfold encoder;
  std::string lengths;
  std::string decoder;
  std::string token_input;
  std::string token_output;
  std::vector<StateFeed> states;
  int64_t go = 0;
  int64_t eos = 0;
  int64_t extra_length = 0;  // an answer has at most so many tokens more than its request
  std::string tokens_name;   // the model's outputs
  std::string lengths_name;
};
// A state that passes up a binary tree.
struct TreeState {
  std::string name;
  std::string leaf;      // the leaf cell's output
  std::string internal;  // the internal cell's output
  std::string left;      // the internal cell's inputs
  std::string right;
};
struct TreeUnfold {
  std::string leaf;
  TokensFeed tokens;
  std::string internal;
  std::string children;  // the model's input
  std::vector<TreeState> states;
  std::vector<CollectedOutput> outputs;
  std::optional<HeadCell> head;
};
// A user's own unfold function (chairlift/unfold.h).
struct PluginUnfold {
  std::string library;  // in the model's folder
  std::map<std::string, std::string> options;
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
};

struct CellManifest {
  std::vector<CellFile> cells;
  std::variant<ChainUnfold, Seq2SeqUnfold, TreeUnfold, PluginUnfold> unfold;
};

// Reads `cells` and `unfold` of a model.yaml; nothing where it has neither.
StatusOr<std::optional<CellManifest>> ReadCellManifest(const YamlValue& settings);

// Where the file `name` is in `folder`: NotFound if there is none, InvalidArgument if the name or a
// folder on the way leads out of `folder`. The file itself may be a link to anywhere, as a cache of
// models has it.
StatusOr<std::filesystem::path> PathInside(const std::filesystem::path& folder,
                                           const std::string& name);
// The same for a file that must lie in the folder: InvalidArgument if it is a link that leads out.
StatusOr<std::filesystem::path> FileInside(const std::filesystem::path& folder,
                                           const std::string& name);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_MANIFEST_H_
