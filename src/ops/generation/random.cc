// chairlift::Random: random numbers that follow from a seed, the node and the place of the element.
//
// Every element has its own counter (philox.h): the row's number within its request, and the
// element's place within the row. So a request gets the same numbers alone, in any batch, on any
// number of threads, and padded or not.
//
// Inputs: the seeds (random.h). Optional: a tensor whose shape the output gets.
// Attributes: distribution ("uniform", "normal" or "gumbel"), dtype, stream (the node's number);
// optional: shape, for the output if there is no such tensor; offset and scale of the numbers;
// seed, used if the request gives none.
#include "ops/generation/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <string>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/generation/generation.h"
#include "ops/generation/philox.h"

namespace chairlift {
namespace {

// Fewer elements are not worth a second worker.
constexpr int64_t kElementsPerPart = 8192;

enum class Distribution { kUniform, kNormal, kGumbel };

StatusOr<Distribution> DistributionOf(const Attributes& attributes) {
  const std::string name = attributes.String("distribution", "");
  if (name == "uniform") return Distribution::kUniform;
  if (name == "normal") return Distribution::kNormal;
  if (name == "gumbel") return Distribution::kGumbel;
  return InvalidArgument("distribution '{}' is not supported", name);
}

Status InferRandom(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(DistributionOf(context.attributes()).status());
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype,
                             TypeAttribute(context.attributes().Int("dtype", 0), kFloatTypes));
  const SymbolicShape& seeds = context.shape(0);
  if (seeds.has_rank() && (seeds.rank() != 2 || !seeds[1].Same(Dim(kSeedColumns)))) {
    return InvalidArgument("seeds have shape {}, not [rows,{}]", seeds.ToString(), kSeedColumns);
  }
  if (context.has_input(1)) {
    return SetOutput(context, 0, dtype, context.shape(1));
  }
  const std::vector<int64_t> sizes = context.attributes().Ints("shape");
  if (sizes.size() > kMaxRank) return InvalidArgument("the shape has rank {}", sizes.size());
  std::vector<Dim> dims;
  for (const int64_t size : sizes) {
    if (size < 0) return InvalidArgument("the shape has dimension {}", size);
    dims.emplace_back(size);
  }
  return SetOutput(context, 0, dtype, SymbolicShape(std::move(dims)));
}

// A seed that is given as a float.
int64_t SeedOf(float seed) { return std::bit_cast<int32_t>(seed); }

PhiloxKey Words(uint64_t bits) {
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

// The numbers of one node.
struct Source {
  Distribution distribution = Distribution::kUniform;
  uint64_t stream = 0;
  std::optional<int64_t> seed;  // of the node
  double offset = 0, scale = 1;

  // The key of a row, given its entry in the seeds.
  PhiloxKey Key(const int64_t* row) const {
    const bool given = row[2] != 0 || !seed;
    const PhiloxKey number = Words(stream);
    const PhiloxCounter mixed =
        Philox({number[0], number[1], 0, 0}, Words(static_cast<uint64_t>(given ? row[0] : *seed)));
    return {mixed[0], mixed[1]};
  }

  // The two numbers of a counter.
  template <typename T>
  void Fill(PhiloxCounter counter, PhiloxKey key, T* first, T* second) const {
    const PhiloxCounter bits = Philox(counter, key);
    const uint64_t a = uint64_t{bits[1]} << 32 | bits[0], b = uint64_t{bits[3]} << 32 | bits[2];
    switch (distribution) {
      case Distribution::kUniform:
        Set(Fraction<T>(a), first);
        Set(Fraction<T>(b), second);
        break;
      case Distribution::kNormal: {  // Box and Muller, 1958
        const double length = std::sqrt(-2 * std::log(1 - Fraction<double>(a)));
        const double angle = 2 * std::numbers::pi * Fraction<double>(b);
        Set(length * std::cos(angle), first);
        Set(length * std::sin(angle), second);
        break;
      }
      case Distribution::kGumbel:
        Set(Gumbel(a), first);
        Set(Gumbel(b), second);
        break;
    }
  }

 private:
  // In [0, 1), a whole multiple of the distance between numbers of T next to 1.
  template <typename T>
  static double Fraction(uint64_t bits) {
    constexpr int kDigits = std::numeric_limits<T>::digits;
    return std::ldexp(static_cast<double>(bits >> (64 - kDigits)), -kDigits);
  }
  static double Gumbel(uint64_t bits) {
    const double inside = std::ldexp(static_cast<double>(bits >> 12) + 0.5, -52);  // (0, 1)
    return -std::log(-std::log(inside));
  }
  template <typename T>
  void Set(double number, T* to) const {
    if (to != nullptr) *to = static_cast<T>(offset + scale * number);
  }
};

template <typename T>
std::unique_ptr<Kernel> CompileForRandom(const CompileContext& context, const Source& source) {
  const Shape& shape = context.outputs[0].shape;
  const int rank = shape.rank();
  const int64_t rows = rank > 0 ? shape[0] : 1;
  const int64_t last = rank > 1 ? shape[rank - 1] : 1;
  const int64_t inner = rank > 2 ? shape[rank - 2] : 1;
  const int64_t lines = rank > 1 ? shape.NumElements(1, rank - 1) : 1;  // in a row
  const int64_t seeds = context.inputs[0].shape[0];
  const int64_t total = rows * lines;
  const auto parts = static_cast<int>(
      std::clamp<int64_t>(total * last / kElementsPerPart, 1,
                          std::max<int64_t>(1, std::min<int64_t>(total, context.width))));
  return MakeKernel([=](const KernelArgs& args) {
    const auto* given = static_cast<const int64_t*>(args.inputs[0]);
    T* const out = static_cast<T*>(args.outputs[0]);
    args.team.For(parts, [&](int part, int) {
      static constexpr int64_t kNoSeed[kSeedColumns] = {};
      for (int64_t line = total * part / parts; line < total * (part + 1) / parts; ++line) {
        const int64_t row = line / lines, place = line % lines;
        // Seeds of another number of rows are all those of one request.
        const bool own = seeds == rows;
        const int64_t* const seed = own ? given + row * kSeedColumns : seeds > 0 ? given : kNoSeed;
        const PhiloxKey key = source.Key(seed);
        const auto number = static_cast<uint32_t>(own ? seed[1] : row);
        T* const to = out + line * last;
        for (int64_t i = 0; i < last; i += 2) {
          source.Fill({number, static_cast<uint32_t>(place / inner),
                       static_cast<uint32_t>(place % inner), static_cast<uint32_t>(i / 2)},
                      key, to + i, i + 1 < last ? to + i + 1 : nullptr);
        }
      }
    });
    return absl::OkStatus();
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileRandom(const CompileContext& context) {
  Source source;
  CHAIRLIFT_ASSIGN_OR_RETURN(source.distribution, DistributionOf(context.attributes));
  source.stream = static_cast<uint64_t>(context.attributes.Int("stream", 0));
  if (const float* seed = context.attributes.Find<float>("seed")) source.seed = SeedOf(*seed);
  source.offset = context.attributes.Float("offset", 0);
  source.scale = context.attributes.Float("scale", 1);
  return DispatchTypes<float, double>(context.outputs[0].dtype,
                                      [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
                                        return CompileForRandom<T>(context, source);
                                      });
}

StatusOr<AxisMap> AxesOfRandom(const InferContext& context) {
  if (!context.has_input(1)) {
    return Unimplemented("its shape is fixed, so requests cannot have random numbers of their own");
  }
  AxisMap map = MakeAxisMap(context);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 1));
  map.does = "numbers its elements along";
  if (rank == 0) return map;
  for (AxisMap::Operand* operand : {&map.inputs[0], &map.inputs[1], &map.outputs[0]}) {
    operand->labels = {0};
  }
  return map;
}

}  // namespace

Tensor SeedsOf(int64_t seed, bool given, int64_t rows) {
  Tensor seeds = Tensor::Allocate(DType::kInt64, {rows, kSeedColumns});
  int64_t* to = seeds.data<int64_t>();
  for (int64_t row = 0; row < rows; ++row, to += kSeedColumns) {
    to[0] = seed;
    to[1] = row;
    to[2] = given ? 1 : 0;
  }
  return seeds;
}

void RegisterRandom(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "Random",
                .min_inputs = 1,
                .max_inputs = 2,
                .input_types = {TypeSet{DType::kInt64}, kAllTypes},
                .infer = InferRandom,
                .axes = AxesOfRandom,
                .compile = CompileRandom});
}

}  // namespace chairlift
