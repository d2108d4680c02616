#include "ops/kernel_references.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "ops/quantization/round_to_bytes.h"
#include "ops/random_tensor.h"

namespace chairlift::testing {
namespace {

using Tensors = std::vector<Tensor>;

Tensor Doubles(const Shape& shape, const std::vector<double>& values) {
  return Tensor::Of<double>(shape, std::span<const double>(values));
}
Tensor Widened(const Tensor& t) {
  return t.present() ? Doubles(t.shape(), AsDoubles(t)) : Tensor();
}
double Scalar(const Tensor& t) { return t.present() ? AsDoubles(t)[0] : 0.0; }

template <typename F>
Tensor Each(const Tensor& t, F f) {
  std::vector<double> values = AsDoubles(t);
  std::transform(values.begin(), values.end(), values.begin(), f);
  return Doubles(t.shape(), values);
}

// Input `i` less the zero point in input `zero`.
Tensor Centred(const OperatorCall& call, size_t i, size_t zero) {
  const double z = zero < call.inputs.size() ? Scalar(call.inputs[zero]) : 0.0;
  return Each(call.inputs[i], [z](double x) { return x - z; });
}

StatusOr<Tensors> RunAs(const char* name, const OperatorCall& call, Tensors inputs) {
  return RunOperator({.name = name, .attributes = call.attributes, .inputs = std::move(inputs)});
}

Tensor Quantised(const Tensor& t, double scale, double zero) {
  return Each(t,
              [&](double x) { return std::clamp(std::nearbyint(x / scale) + zero, 0.0, 255.0); });
}

StatusOr<Tensors> Attention(const OperatorCall& call) {
  return RunAs("Attention", call,
               {Widened(call.inputs[0]), Widened(call.inputs[1]), Widened(call.inputs[2])});
}

// Sequence by sequence.
StatusOr<Tensors> RaggedAttention(const OperatorCall& call) {
  const Shape& shape = call.inputs[0].shape();
  const int64_t width = shape[1] * shape[2];
  OperatorCall one{.name = "Attention", .attributes = call.attributes};
  one.attributes.Set("q_num_heads", shape[1]);
  one.attributes.Set("kv_num_heads", shape[1]);
  const auto offsets = call.inputs[3].values<int64_t>();
  std::vector<double> all;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    one.inputs.clear();
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<double> values = AsDoubles(call.inputs[i]);
      one.inputs.push_back(
          Doubles({1, offsets[s + 1] - offsets[s], width},
                  {values.begin() + offsets[s] * width, values.begin() + offsets[s + 1] * width}));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Tensors y, RunOperator(one));
    const std::vector<double> values = AsDoubles(y[0]);
    all.insert(all.end(), values.begin(), values.end());
  }
  return Tensors{Doubles(shape, all)};
}

// The gated delta rule with a decay for each column and a beta for each head.
StatusOr<Tensors> LinearAttention(const OperatorCall& call) {
  const int64_t heads = call.attributes.Int("q_num_heads", 1);
  const Shape& shape = call.inputs[0].shape();
  const int64_t size = shape[2] / heads;
  const auto q = AsDoubles(call.inputs[0]), k = AsDoubles(call.inputs[1]),
             v = AsDoubles(call.inputs[2]), decay = AsDoubles(call.inputs[4]),
             beta = AsDoubles(call.inputs[5]);
  std::vector<double> y(q.size());
  for (int64_t h = 0; h < shape[0] * heads; ++h) {
    std::vector<double> state(static_cast<size_t>(size * size));
    const auto read = [&](const std::vector<double>& x, size_t at, int64_t column) {
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        sum += state[static_cast<size_t>(i * size + column)] * x[at + static_cast<size_t>(i)];
      }
      return sum;
    };
    for (int64_t t = 0; t < shape[1]; ++t) {
      const int64_t token = (h / heads * shape[1] + t) * heads + h % heads;
      const auto at = static_cast<size_t>(token * size);
      for (int64_t e = 0; e < size * size; ++e) {
        state[static_cast<size_t>(e)] *= std::exp(decay[at + static_cast<size_t>(e / size)]);
      }
      for (int64_t c = 0; c < size; ++c) {
        const double change =
            beta[static_cast<size_t>(token)] * (v[at + static_cast<size_t>(c)] - read(k, at, c));
        for (int64_t i = 0; i < size; ++i) {
          state[static_cast<size_t>(i * size + c)] += k[at + static_cast<size_t>(i)] * change;
        }
        y[at + static_cast<size_t>(c)] = read(q, at, c) / std::sqrt(static_cast<double>(size));
      }
    }
  }
  return Tensors{Doubles(shape, y)};
}

StatusOr<Tensors> ParallelMatMul(const OperatorCall& call) {
  Tensors products;
  for (size_t i = 1; i < call.inputs.size(); i += 2) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        const Tensors y, RunAs("MatMul", call, {Widened(call.inputs[0]), Widened(call.inputs[i])}));
    products.push_back(y[0]);
  }
  return products;
}

StatusOr<Tensors> SkipLayerNorm(const OperatorCall& call) {
  Tensor sum = Widened(call.inputs[0]);
  for (size_t i = 1; i < 3; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Tensors next,
                               RunAs("Add", call, {sum, Widened(call.inputs[i])}));
    sum = next[0];
  }
  return RunAs("LayerNormalization", call, {sum, Widened(call.inputs[3])});
}

// Without zero points.
StatusOr<Tensors> MatMulNBits(const OperatorCall& call) {
  const int64_t k = call.attributes.Int("K", 0), n = call.attributes.Int("N", 0);
  const int64_t bits = call.attributes.Int("bits", 4);
  const int64_t block = call.attributes.Int("block_size", 0);
  const std::vector<double> bytes = AsDoubles(call.inputs[1]), scales = AsDoubles(call.inputs[4]);
  std::vector<double> b(static_cast<size_t>(k * n));
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = column * k + i;  // of codes: columns are whole blocks
      const auto byte = static_cast<int>(bytes[static_cast<size_t>(at * bits / 8)]);
      const int code = bits == 8 ? byte - 128 : (at % 2 == 0 ? byte & 15 : byte >> 4) - 8;
      b[static_cast<size_t>(i * n + column)] = code * scales[static_cast<size_t>(at / block)];
    }
  }
  std::vector<double> a = AsDoubles(call.inputs[0]);
  RoundToBytes(call.attributes, a);
  return RunOperator(
      {.name = "MatMul", .inputs = {Doubles(call.inputs[0].shape(), a), Doubles({k, n}, b)}});
}

StatusOr<Tensors> MatMulInteger(const OperatorCall& call) {
  return RunAs("MatMul", call, {Centred(call, 0, 2), Centred(call, 1, 3)});
}
// With one scale for A and one for W, and a bias.
StatusOr<Tensors> ScaledIntegerProduct(const OperatorCall& call) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensors product,
                             RunAs("MatMul", call, {Centred(call, 0, 5), Centred(call, 1, 7)}));
  std::vector<double> y = AsDoubles(product[0]);
  const std::vector<double> bias = AsDoubles(call.inputs[2]);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = y[i] * Scalar(call.inputs[4]) * Scalar(call.inputs[6]) + bias[i % bias.size()];
  }
  return Tensors{Doubles(product[0].shape(), y)};
}
StatusOr<Tensors> ConvInteger(const OperatorCall& call) {
  return RunAs("Conv", call, {Centred(call, 0, 2), Centred(call, 1, 3)});
}
// x, its scale, its zero point, w and its, y's, and a bias in units of both scales.
StatusOr<Tensors> Requantised(const char* name, const OperatorCall& call) {
  Tensors operands = {Centred(call, 0, 2), Centred(call, 3, 5)};
  if (call.inputs.size() > 8) operands.push_back(Widened(call.inputs[8]));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensors sums, RunAs(name, call, operands));
  const double scale = Scalar(call.inputs[6]) / Scalar(call.inputs[1]) / Scalar(call.inputs[4]);
  return Tensors{Quantised(sums[0], scale, Scalar(call.inputs[7]))};
}
StatusOr<Tensors> QLinearMatMul(const OperatorCall& call) { return Requantised("MatMul", call); }
StatusOr<Tensors> QLinearConv(const OperatorCall& call) { return Requantised("Conv", call); }

StatusOr<Tensors> DynamicQuantizeLinear(const OperatorCall& call) {
  const std::vector<double> x = AsDoubles(call.inputs[0]);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double scale = (std::max(*high, 0.0) - std::min(*low, 0.0)) / 255;
  const double zero = std::nearbyint(-std::min(*low, 0.0) / scale);
  return Tensors{Quantised(call.inputs[0], scale, zero), Doubles({}, {scale}), Doubles({}, {zero})};
}
StatusOr<Tensors> DequantizeLinear(const OperatorCall& call) {
  const double scale = Scalar(call.inputs[1]);
  return Tensors{Each(call.inputs[0], [scale](double x) { return x * scale; })};
}

}  // namespace

StatusOr<std::vector<Tensor>> ReferenceOf(const OperatorCall& call) {
  using Reference = StatusOr<Tensors> (*)(const OperatorCall&);
  static const auto* const kOthers = new std::map<std::string, Reference>{
      {"chairlift::Attention", Attention},
      {"chairlift::ParallelMatMul", ParallelMatMul},
      {"chairlift::RaggedAttention", RaggedAttention},
      {"chairlift::SkipLayerNorm", SkipLayerNorm},
      {"::ConvInteger", ConvInteger},
      {"::DequantizeLinear", DequantizeLinear},
      {"::DynamicQuantizeLinear", DynamicQuantizeLinear},
      {"::LinearAttention", LinearAttention},
      {"::MatMulInteger", MatMulInteger},
      {"chairlift::MatMulNBits", MatMulNBits},
      {"chairlift::ScaledIntegerProduct", ScaledIntegerProduct},
      {"::QLinearConv", QLinearConv},
      {"::QLinearMatMul", QLinearMatMul}};
  const auto other = kOthers->find(call.domain + "::" + call.name);
  if (other != kOthers->end()) return other->second(call);
  OperatorCall wide = call;
  wide.blocked = {};
  for (Tensor& input : wide.inputs) {
    if (input.dtype() == DType::kFloat) input = Widened(input);
  }
  return RunOperator(wide);
}

}  // namespace chairlift::testing
