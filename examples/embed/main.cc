// embed MODEL.onnx: loads a model whose first input is float32, and asks it about ones.
#include <algorithm>
#include <iostream>

#include "chairlift/engine.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: embed MODEL.onnx\n", 2;
  auto engine = chairlift::Engine::Create({});
  if (!engine.ok()) return std::cerr << engine.status() << "\n", 1;
  const chairlift::Status loaded = (*engine)->LoadModel("model", argv[1], {});
  if (!loaded.ok()) return std::cerr << loaded << "\n", 1;

  chairlift::TensorSpec input = (*engine)->Metadata("model")->inputs[0];
  for (int64_t& dim : input.shape) dim = std::max<int64_t>(dim, 1);  // what varies, varies from 1
  const chairlift::Shape shape{std::span<const int64_t>(input.shape)};
  auto ones = chairlift::Tensor::Allocate(chairlift::DType::kFloat, shape);
  std::fill_n(ones.data<float>(), ones.size(), 1.0f);

  auto answer = (*engine)->Infer({.model = "model", .inputs = {{input.name, ones}}});
  if (!answer.ok()) return std::cerr << answer.status() << "\n", 1;
  for (const auto& [name, tensor] : answer->outputs) {
    std::cout << name << " " << tensor.shape().ToString() << ":";
    for (float value : tensor.values<float>()) std::cout << " " << value;
    std::cout << "\n";
  }
}
