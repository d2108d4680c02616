// embed MODEL.onnx: loads a model, and sends it inputs of ones.
#include <algorithm>
#include <iostream>
#include <string_view>
#include <type_traits>

#include "chairlift/engine.h"
#include "chairlift/text.h"

// Calls visit(T{}) with the C++ type of the elements. False for a tensor without a type.
template <typename Visit>
bool VisitType(chairlift::DType type, Visit visit) {
  using chairlift::DType;
  switch (type) {
    case DType::kFloat:
      return visit(float{}), true;
    case DType::kFloat16:
      return visit(chairlift::Float16{}), true;
    case DType::kBFloat16:
      return visit(chairlift::BFloat16{}), true;
    case DType::kDouble:
      return visit(double{}), true;
    case DType::kInt8:
      return visit(int8_t{}), true;
    case DType::kInt16:
      return visit(int16_t{}), true;
    case DType::kInt32:
      return visit(int32_t{}), true;
    case DType::kInt64:
      return visit(int64_t{}), true;
    case DType::kUInt8:
      return visit(uint8_t{}), true;
    case DType::kUInt16:
      return visit(uint16_t{}), true;
    case DType::kUInt32:
      return visit(uint32_t{}), true;
    case DType::kUInt64:
      return visit(uint64_t{}), true;
    case DType::kBool:
      return visit(bool{}), true;
    case DType::kBytes:
      return visit(std::string_view{}), true;
    default:
      return false;
  }
}

template <typename T>
T One() {
  if constexpr (std::is_same_v<T, std::string_view>) return "1";
  if constexpr (!std::is_same_v<T, std::string_view>) return T(1);
}

// A form that streams print as a number or a text: not int8_t, which is a character.
template <typename T>
auto Printable(T value) {
  if constexpr (std::is_same_v<T, std::string_view>) return value;
  if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string_view>) {
    return static_cast<float>(value);
  }
  if constexpr (std::is_arithmetic_v<T>) return +value;
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: embed MODEL.onnx\n", 2;
  auto engine = chairlift::Engine::Create({});
  if (!engine.ok()) return std::cerr << engine.status() << "\n", 1;
  const chairlift::Status loaded = (*engine)->LoadModel("model", argv[1], {});
  if (!loaded.ok()) return std::cerr << loaded << "\n", 1;

  chairlift::InferRequest request{.model = "model"};
  const auto metadata = (*engine)->Metadata("model");
  if (!metadata.ok()) return std::cerr << metadata.status() << "\n", 1;
  for (chairlift::TensorSpec input : metadata->inputs) {
    for (int64_t& dim : input.shape)
      dim = std::max<int64_t>(dim, 1);  // varying dimensions become
                                        // 1
    const chairlift::Shape shape{std::span<const int64_t>(input.shape)};
    auto ones = chairlift::Tensor::Allocate(input.dtype, shape);
    const bool known = VisitType(
        input.dtype, [&]<typename T>(T) { std::fill_n(ones.data<T>(), ones.size(), One<T>()); });
    if (!known) return std::cerr << input.name << ": its element type is not known\n", 1;
    request.inputs.push_back({input.name, ones});
  }

  auto answer = (*engine)->Infer(std::move(request));
  if (!answer.ok()) return std::cerr << answer.status() << "\n", 1;
  for (const auto& [name, tensor] : answer->outputs) {
    std::cout << name << " " << tensor.shape().ToString() << ":";
    const bool known = VisitType(tensor.dtype(), [&]<typename T>(T) {
      for (const T value : tensor.values<T>()) std::cout << " " << Printable(value);
    });
    std::cout << (known ? "\n" : " (an element type that is not known)\n");
  }
}
