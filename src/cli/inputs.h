// A model's inputs for the command line: read from files, or made up to fit its signature.
#ifndef CHAIRLIFT_CLI_INPUTS_H_
#define CHAIRLIFT_CLI_INPUTS_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift {

// Each argument is NAME=FILE.npy.
StatusOr<std::vector<NamedTensor>> ReadInputs(const std::vector<std::string>& arguments);

// How made-up inputs are shaped. Dimensions that the model leaves open take, in this order: the
// shape given for the input by name; `batch` for dimension 0; `length` for all others.
struct InputShapes {
  std::map<std::string, std::vector<int64_t>> by_name;
  int64_t batch = 1;
  int64_t length = 16;
};

// Parses NAME=2x3x4 arguments into shapes.by_name.
Status ParseShapes(const std::vector<std::string>& arguments, InputShapes* shapes);
// kInvalidArgument where a shape is given for what is no input.
Status CheckShapeNames(const std::vector<TensorSpec>& specs, const InputShapes& shapes);
// Whether dimensions other than the first are open, so that length matters.
bool VariesInLength(const std::vector<TensorSpec>& specs);
StatusOr<Shape> ResolveShape(const TensorSpec& spec, const InputShapes& shapes);

// Seeded values: standard normal for floats; 0..99 for integers; ones for bools and for inputs with
// "mask" in their name; zeros for those with "token_type" or "segment".
StatusOr<std::vector<NamedTensor>> MakeInputs(const std::vector<TensorSpec>& specs,
                                              const InputShapes& shapes, std::mt19937_64& random);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_INPUTS_H_
