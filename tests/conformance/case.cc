// One case of the ONNX project's backend test data.
#include "conformance/case.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "chairlift/text.h"
#include "graph/onnx/import.h"
#include "graph/onnx/tensor_proto.h"
#include "ops/generation/random.h"
#include "runtime/executable.h"

namespace chairlift::conformance {
namespace {

namespace fs = std::filesystem;

// The ONNX project's own runner compares with these; 16-bit types carry about 3 and 2 digits.
struct Tolerance {
  double relative;
  double absolute;
};
Tolerance ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {2e-3, 1e-4};
    case DType::kBFloat16:
      return {1.6e-2, 1e-3};
    case DType::kFloat:
    case DType::kDouble:
      return {1e-3, 1e-7};
    default:
      return {0, 0};
  }
}

StatusOr<Tensor> ReadTensor(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto proto;
  if (!file || !proto.ParseFromIstream(&file)) {
    return InvalidArgument("{} is not a tensor", path.string());
  }
  return DecodeTensor(proto, {});
}

// <folder>/<prefix>0.pb, <prefix>1.pb, ...
StatusOr<std::vector<Tensor>> ReadTensors(const fs::path& folder, const std::string& prefix) {
  std::vector<Tensor> out;
  for (int i = 0;; ++i) {
    const fs::path path = folder / fmt::format("{}{}.pb", prefix, i);
    if (!fs::exists(path)) return out;
    CHAIRLIFT_ASSIGN_OR_RETURN(out.emplace_back(), ReadTensor(path));
  }
}

template <typename T>
std::optional<std::string> Difference(const Tensor& actual, const Tensor& expected) {
  const Tolerance tolerance = ToleranceOf(expected.dtype());
  for (int64_t i = 0; i < expected.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      if (actual.data<T>()[i] == expected.data<T>()[i]) continue;
      return fmt::format("element {} is {}, expected {}", i, +actual.data<T>()[i],
                         +expected.data<T>()[i]);
    } else {
      const auto a = static_cast<double>(static_cast<float>(actual.data<T>()[i]));
      const auto e = static_cast<double>(static_cast<float>(expected.data<T>()[i]));
      if (a == e || (std::isnan(a) && std::isnan(e))) continue;
      if (std::abs(a - e) <= tolerance.absolute + tolerance.relative * std::abs(e)) continue;
      return fmt::format("element {} is {}, expected {}", i, a, e);
    }
  }
  return std::nullopt;
}

Status Compare(const Tensor& actual, const Tensor& expected, const std::string& name) {
  if (actual.dtype() != expected.dtype()) {
    return InvalidArgument("output '{}' is {}, expected {}", name, DTypeName(actual.dtype()),
                           DTypeName(expected.dtype()));
  }
  if (!(actual.shape() == expected.shape())) {
    return InvalidArgument("output '{}' has shape {}, expected {}", name, actual.shape().ToString(),
                           expected.shape().ToString());
  }
  if (expected.dtype() == DType::kBytes) {
    const auto got = TextsOf(actual), want = TextsOf(expected);
    if (std::equal(got.begin(), got.end(), want.begin(), want.end())) return absl::OkStatus();
    return InvalidArgument("output '{}' has other strings", name);
  }
  const auto difference = DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t,
                                        int64_t, uint8_t, uint16_t, uint32_t, uint64_t, bool>(
      expected.dtype(), [&]<typename T>() -> StatusOr<std::optional<std::string>> {
        return Difference<T>(actual, expected);
      });
  CHAIRLIFT_RETURN_IF_ERROR(difference.status());
  if (difference->has_value()) return InvalidArgument("output '{}': {}", name, **difference);
  return absl::OkStatus();
}

// The data was written by NumPy, which has no bfloat16: its bits stand in tensors of uint16.
void ReadBFloat16(const std::vector<SymbolicSpec>& specs, std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < specs.size() && i < tensors.size(); ++i) {
    Tensor& t = tensors[i];
    if (specs[i].dtype == DType::kBFloat16 && t.dtype() == DType::kUInt16) {
      t = Tensor::Wrap(DType::kBFloat16, t.shape(), t.raw(), t.owner());
    }
  }
}

// `seeded`: its last input is for seeds.
Status RunDataSet(Executable& executable, bool seeded, const fs::path& folder) {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, ReadTensors(folder, "input_"));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> expected, ReadTensors(folder, "output_"));
  ReadBFloat16(executable.inputs(), inputs);
  ReadBFloat16(executable.outputs(), expected);
  if (seeded) inputs.push_back(SeedsOf(/*seed=*/1, /*given=*/true, /*rows=*/1));
  SoloTeam team;
  Arena arena;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                             executable.Run(inputs, team, /*worker=*/0, arena));
  if (outputs.size() != expected.size() || outputs.empty()) {
    return InvalidArgument("{} outputs, expected {}", outputs.size(), expected.size());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(Compare(outputs[i], expected[i], executable.outputs()[i].name));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Case> FindCases(const fs::path& root) {
  std::vector<Case> cases;
  for (const char* set : {"node", "simple", "pytorch-operator", "pytorch-converted"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root / set, error)) {
      if (!fs::exists(entry.path() / "model.onnx")) continue;
      cases.push_back({fmt::format("{}/{}", set, entry.path().filename().string()), entry.path()});
    }
  }
  std::sort(cases.begin(), cases.end(),
            [](const Case& a, const Case& b) { return a.name < b.name; });
  return cases;
}

Status RunCase(const Case& test) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel model, ImportOnnxFile(test.folder / "model.onnx"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                             Executable::Create(std::move(model.graph), {}));
  const bool seeded = !model.seeds.empty();
  int sets = 0;
  for (;; ++sets) {
    const fs::path folder = test.folder / fmt::format("test_data_set_{}", sets);
    if (!fs::exists(folder)) break;
    CHAIRLIFT_RETURN_IF_ERROR(
        Annotate(RunDataSet(*executable, seeded, folder), folder.filename().string()));
  }
  if (sets == 0) return NotFound("the case has no data");
  return absl::OkStatus();
}

}  // namespace chairlift::conformance
