// A model made of cells, as described by `cells` and `unfold` of its model.yaml
// (docs/concepts/cells.md).
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
  int max_batch_size = 0;  // rows in a task; 0: the model's setting
  std::optional<int> priority = {};
};

// The names below are those of a cell's inputs and outputs, except `request` and `name`, which are
// the model's.
struct TokensFeed {
  std::string input;
  std::string request;
};
struct StateFeed {
  std::string input;
  std::string output;
  // What the first step reads: the model's input of that name (for a decoder: the encoder's
  // output); empty: zeros.
  std::string initial;
};
struct CollectedOutput {
  std::string name;
  std::string output;  // for a tree: a state, unless a head is meant
  bool all = false;    // of every step or node, instead of only the last step or the root
};
// A cell that reads the result of the last step, or of every step (for a tree: of the root, or of
// every node).
struct HeadCell {
  std::string cell;
  bool all = false;
  std::map<std::string, std::string> inputs;  // → the output, or the tree's state, that it reads
  std::vector<CollectedOutput> outputs;
};

// One cell over the tokens of a sequence; each step reads the previous step's result.
struct StepsUnfold {
  std::string cell;
  TokensFeed tokens;
  std::vector<StateFeed> states;
};
struct ChainUnfold {
  StepsUnfold steps;
  std::string lengths;  // the model's input with each row's length; empty: all have full length
  std::vector<CollectedOutput> outputs;
  std::optional<HeadCell> head;
};
// An encoder, followed by a decoder that reads its own last token until it produces `eos`.
struct Seq2SeqUnfold {
  StepsUnfold encoder;
  std::string lengths;
  std::string decoder;
  std::string token_input;
  std::string token_output;
  std::vector<StateFeed> states;
  int64_t go = 0;
  int64_t eos = 0;
  // The maximum number of tokens of an answer beyond the length of its request.
  int64_t extra_length = 0;
  std::string tokens_name;  // the model's outputs
  std::string lengths_name;
};
// A state that is passed up a binary tree.
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

// Reads `cells` and `unfold` of a model.yaml; nothing if it has neither.
StatusOr<std::optional<CellManifest>> ReadCellManifest(const YamlValue& settings);

// The path of file `name` in `folder`. NotFound if there is none; InvalidArgument if the name or a
// folder on the way leads out of `folder`. The file itself may be a link to anywhere, as in a cache
// of models.
StatusOr<std::filesystem::path> PathInside(const std::filesystem::path& folder,
                                           const std::string& name);
// The same for a file that must be in the folder: InvalidArgument if it is a link that leads out.
StatusOr<std::filesystem::path> FileInside(const std::filesystem::path& folder,
                                           const std::string& name);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_MANIFEST_H_
