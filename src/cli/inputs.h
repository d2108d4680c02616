// A model's inputs for the command line: read from files, or generated to fit its signature.
#ifndef CHAIRLIFT_CLI_INPUTS_H_
#define CHAIRLIFT_CLI_INPUTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift {

// Each argument is NAME=FILE.npy.
StatusOr<std::vector<NamedTensor>> ReadInputs(const std::vector<std::string>& arguments);

// The shapes of generated inputs. Dimensions that the model leaves open take, in this order: the
// shape given for the input by name; `batch` for dimension 0; `length` for all others.
struct InputShapes {
  std::map<std::string, std::vector<int64_t>> by_name;
  int64_t batch = 1;
  int64_t length = 16;
  // For inputs with a fixed dimension 0, the open ones are `batch` too: a state [layers, batch, n].
  bool fixed_first_is_state = false;
};

// Tried after the default: common sizes of images and audio frames.
inline constexpr int64_t kLengthsToTry[] = {32, 64, 128, 224, 256, 320, 512, 576, 640, 1024};

// Parses NAME=2x3x4 arguments into shapes.by_name.
Status ParseShapes(const std::vector<std::string>& arguments, InputShapes* shapes);
// kInvalidArgument if a shape is given for an unknown input.
Status CheckShapeNames(const std::vector<TensorSpec>& specs, const InputShapes& shapes);
// Whether dimensions other than the first are open, so that length matters.
bool VariesInLength(const std::vector<TensorSpec>& specs);
StatusOr<Shape> ResolveShape(const TensorSpec& spec, const InputShapes& shapes);

// Whether they are the inputs of a model that generates (docs/guides/language-models.md).
bool AreOfGeneration(const std::vector<TensorSpec>& specs);

// Describes the inputs of generated requests: "x float32 [1,16], mask int64 [1,16]"
StatusOr<std::string> DescribeInputs(const std::vector<TensorSpec>& specs,
                                     const InputShapes& shapes);

// Searches for shapes that the model accepts: `shapes` itself, then with each of `lengths`, and
// with the other interpretation of inputs with a fixed dimension 0. Calls `attempt` until it is OK
// or fails with another code than kInvalidArgument. If nothing is accepted, returns the first
// refusal, and the flag that helps.
StatusOr<InputShapes> FindShapes(const std::vector<TensorSpec>& specs, const InputShapes& shapes,
                                 std::span<const int64_t> lengths,
                                 const std::function<Status(const InputShapes&)>& attempt);

// Seeded values: standard normal for floats; 0..99 for small integers, 0 and 1 for wide ones; ones
// for bools and for inputs with "mask" in their name; zeros for those with "token_type" or
// "segment"; 16000 for a sample rate; -1 (no child) for a node's children. For a model that
// generates: only a prompt and the number of tokens to generate.
StatusOr<std::vector<NamedTensor>> MakeInputs(const std::vector<TensorSpec>& specs,
                                              const InputShapes& shapes, std::mt19937_64& random);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_INPUTS_H_
