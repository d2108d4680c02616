// write_doubling_model FILE [TYPE]: a model that the package test asks: y = x + x. With a number of
// onnx.TensorProto.DataType, y = x of that type.
#include <iostream>
#include <string>

#include "engine/test_models.h"

int main(int argc, char** argv) {
  namespace testing = chairlift::testing;
  if (argc < 2 || argc > 3) return std::cerr << "usage: write_doubling_model FILE [TYPE]\n", 2;
  if (argc == 2) return testing::WriteFile(argv[1], testing::DoublingModel().Bytes()), 0;
  const int type = std::stoi(argv[2]);
  testing::ModelBuilder m(17);
  m.Input("x", type, {"batch", 2}).Output("y", type, {"batch", 2});
  m.Node("Identity", {"x"}, {"y"});
  testing::WriteFile(argv[1], m.Bytes());
}
