// Replaces a product with constant weights that DequantizeLinear computes in blocks along their
// columns by chairlift::MatMulNBits: the weights stay packed. Without this pass they would be
// folded to four bytes each.
#include <algorithm>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "ops/quantization/blockwise.h"

namespace chairlift {
namespace {

// Codes [K, N] as integers, and the parameters of each block of `block` codes of a column.
struct BlockwiseConstant {
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;  // [blocks, N]
  const Tensor* zeros = nullptr;   // [blocks, N], or null
  int64_t block = 0;

  int64_t k() const { return codes->shape()[0]; }
  int64_t n() const { return codes->shape()[1]; }
  int64_t blocks() const { return (k() + block - 1) / block; }
};

int IntegerAt(const Tensor& t, int64_t i) {
  return t.dtype() == DType::kInt8 ? t.data<int8_t>()[i] : t.data<uint8_t>()[i];
}

class BlockwiseRecogniser {
 public:
  explicit BlockwiseRecogniser(Graph& graph) : graph_(graph), links_(graph) {}

  int Run() {
    int count = 0;
    for (Node& node : graph_.nodes) {
      if (!Is(node, "MatMul")) continue;
      const int producer = links_.producer(node.inputs[1]);
      if (producer < 0) continue;
      const auto weights = Match(graph_.nodes[static_cast<size_t>(producer)]);
      if (!weights || graph_.values[node.inputs[0]].dtype != DType::kFloat) continue;
      Rewrite(node, *weights);
      ++count;
    }
    return count;
  }

 private:
  std::optional<BlockwiseConstant> Match(const Node& node) const {
    if (!Is(node, "DequantizeLinear")) return std::nullopt;
    BlockwiseConstant found{.codes = ConstantInput(graph_, node, 0),
                            .scales = ConstantInput(graph_, node, 1),
                            .zeros = ConstantInput(graph_, node, 2),
                            .block = node.attributes.Int("block_size", 0)};
    const bool has_zeros = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (found.codes == nullptr || found.scales == nullptr ||
        has_zeros != (found.zeros != nullptr)) {
      return std::nullopt;
    }
    const int64_t axis = node.attributes.Int("axis", 1);
    const bool integers =
        found.codes->dtype() == DType::kInt8 || found.codes->dtype() == DType::kUInt8;
    if (!integers || found.scales->dtype() != DType::kFloat || found.codes->shape().rank() != 2 ||
        found.codes->size() == 0 || (axis != 0 && axis != -2) || found.block < 16 ||
        found.block > kLongestBlock || (found.block & (found.block - 1)) != 0 ||
        graph_.values[node.outputs[0]].dtype != DType::kFloat) {
      return std::nullopt;
    }
    const Shape of_blocks{found.blocks(), found.n()};
    if (!(found.scales->shape() == of_blocks) ||
        (has_zeros &&
         (!(found.zeros->shape() == of_blocks) || found.zeros->dtype() != found.codes->dtype()))) {
      return std::nullopt;
    }
    return found;
  }

  void Rewrite(Node& node, const BlockwiseConstant& weights) {
    // Codes are shifted to start at 0: computes the shift and the number of bits.
    int least = 0, most = 0;
    for (const Tensor* t : {weights.codes, weights.zeros}) {
      for (int64_t i = 0; t != nullptr && i < t->size(); ++i) {
        least = std::min(least, IntegerAt(*t, i));
        most = std::max(most, IntegerAt(*t, i));
      }
    }
    int64_t bits = 8;
    int rise = weights.codes->dtype() == DType::kInt8 ? 128 : 0;
    if (least >= -8 && most <= 7) {
      bits = 4;
      rise = 8;
    } else if (least >= 0 && most <= 15) {
      bits = 4;
      rise = 0;
    }
    const int64_t n = weights.n(), blocks = weights.blocks(), bytes = weights.block * bits / 8;
    Tensor codes = Filled({n, blocks, bytes});
    const auto put = [&](uint8_t* to, int64_t i, int value) {
      if (bits == 8) {
        to[i] = static_cast<uint8_t>(value);
      } else {
        to[i / 2] = static_cast<uint8_t>(to[i / 2] | value << (i % 2 * 4));
      }
    };
    for (int64_t k = 0; k < weights.k(); ++k) {
      for (int64_t j = 0; j < n; ++j) {
        put(codes.data<uint8_t>() + (j * blocks + k / weights.block) * bytes, k % weights.block,
            IntegerAt(*weights.codes, k * n + j) + rise);
      }
    }
    const int64_t zero_bytes = (blocks * bits + 7) / 8;
    Tensor scales = Tensor::Allocate(DType::kFloat, {n, blocks}), zeros = Filled({n, zero_bytes});
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t j = 0; j < n; ++j) {
        scales.data<float>()[j * blocks + b] = weights.scales->data<float>()[b * n + j];
        const int zero = weights.zeros == nullptr ? 0 : IntegerAt(*weights.zeros, b * n + j);
        put(zeros.data<uint8_t>() + j * zero_bytes, b, zero + rise);
      }
    }
    const std::string name = graph_.values[node.inputs[1]].name;
    const bool in_the_middle = weights.zeros == nullptr && rise == 1 << (bits - 1);
    Attributes attributes;
    attributes.Set("K", weights.k());
    attributes.Set("N", n);
    attributes.Set("bits", bits);
    attributes.Set("block_size", weights.block);
    node.inputs = {
        node.inputs[0],
        AddConstant(graph_, name + "/codes", std::move(codes)),
        kNoValue,
        kNoValue,
        AddConstant(graph_, name + "/scales", std::move(scales)),
        in_the_middle ? kNoValue : AddConstant(graph_, name + "/zeros", std::move(zeros))};
    node.attributes = std::move(attributes);
    node.def = OperatorRegistry::Builtin().Find("chairlift", "MatMulNBits");
  }

  static Tensor Filled(const Shape& shape) {
    Tensor t = Tensor::Allocate(DType::kUInt8, shape);
    std::fill_n(t.data<uint8_t>(), t.size(), uint8_t{0});
    return t;
  }

  Graph& graph_;
  const Links links_;
};

StatusOr<int> RunRecogniseBlockwise(Graph& graph, std::vector<std::string>& /*notes*/) {
  return BlockwiseRecogniser(graph).Run();
}

}  // namespace

Pass RecogniseBlockwise() {
  return {"recognise_blockwise", "weights that are quantised in blocks stay so in their product",
          RunRecogniseBlockwise};
}

}  // namespace chairlift
