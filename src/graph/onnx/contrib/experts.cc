// Rules for mixtures of experts: chairlift::MixtureOfExperts over the tokens in one list.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

constexpr size_t kExpertInputs = 14;  // those of QMoE that are supported

ValueId ExpertFloats(Maker& make, ValueId id) {
  if (id == kNoValue || make.info(id).dtype == DType::kFloat) return id;
  return make.CastToFloat(id);
}

// `inputs`: those of chairlift::MixtureOfExperts, which are QMoE's.
Status BecomeExperts(Maker& make, std::array<ValueId, kExpertInputs> inputs) {
  const ValueId x = inputs[0];
  const int rank = make.Rank(x, "its input");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  if (rank != 2 && rank != 3) {
    return InvalidArgument("its input has {} dimensions; it must have 2 or 3", rank);
  }
  const int64_t hidden = make.Size(x, -1, "its input");
  constexpr size_t kZeroPoints = 11;
  for (size_t i = 0; i < kZeroPoints; ++i) {
    const bool codes = i == 2 || i == 5 || i == 8;
    if (codes && make.info(inputs[i]).dtype == DType::kUInt8) continue;
    inputs[i] = ExpertFloats(make, inputs[i]);
  }
  if (rank == 3) inputs[0] = make.Reshape(inputs[0], {-1, hidden});
  Attributes attributes = make.attributes();
  for (const char* name : {"accuracy_level", "quant_type", "weights_prepacked"}) {
    attributes.Erase(name);
  }
  ValueId y =
      make.MakeOwn("MixtureOfExperts", {inputs.begin(), inputs.end()}, std::move(attributes));
  if (make.info(x).dtype != DType::kFloat) y = make.Make("CastLike", {y, x});
  return rank == 2 ? make.Become("Identity", {y})
                   : make.Become("Reshape", {y, make.Make("Shape", {x})});
}

}  // namespace

Status MoE(Maker& make) {
  std::array<ValueId, kExpertInputs> inputs;
  inputs.fill(kNoValue);
  constexpr size_t kPlaces[] = {0, 1, 2, 4, 5, 7, 8, 10};
  for (size_t i = 0; i < std::size(kPlaces); ++i) inputs[kPlaces[i]] = make.in(i);
  return BecomeExperts(make, inputs);
}

Status QMoE(Maker& make) {
  if (const std::string type = make.attributes().String("quant_type", "int"); type != "int") {
    return Unimplemented(
        "quant_type '{}' is not supported; 'int' is: quantize the experts to int4 or int8", type);
  }
  if (make.attributes().Int("weights_prepacked", 0) > 0) {
    return Unimplemented(
        "its weights are laid out for CUDA (weights_prepacked = 1); build the model for the CPU");
  }
  for (size_t i = kExpertInputs; i < make.num_inputs(); ++i) {
    if (make.has(i)) {
      return Unimplemented("its input {}, router weights or global scales, is not supported", i);
    }
  }
  std::array<ValueId, kExpertInputs> inputs;
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = make.in(i);
  for (const size_t i : {size_t{2}, size_t{5}, size_t{8}}) {
    if (make.has(i) && make.info(make.in(i)).dtype != DType::kUInt8) {
      return InvalidArgument("its input {} is {}; weights must be uint8", i,
                             DTypeName(make.info(make.in(i)).dtype));
    }
  }
  return BecomeExperts(make, inputs);
}

}  // namespace chairlift::contrib
