// TfIdfVectorizer: how often each n-gram of a given pool occurs in a sequence of integers or
// strings, optionally weighted.
//
// Weights are indexed by output column, as in the standard's reference implementation and in ONNX
// Runtime. The standard's text indexes them by n-gram, which is the same if the n-grams have their
// columns in order.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/stop_poll.h"
#include "ops/axes.h"
#include "ops/reduction/reduction.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

constexpr int64_t kLongestGram = 64;
constexpr int64_t kMostSkipped = int64_t{1} << 20;
constexpr int64_t kMostColumns = int64_t{1} << 30;

struct Lexicographic {
  using is_transparent = void;
  bool operator()(std::span<const int64_t> a, std::span<const int64_t> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

struct Pool {
  int64_t shortest = 1, longest = 1, skips = 0;
  int64_t columns = 0;
  bool counts = true;          // false: 1 if there is any
  std::vector<float> weights;  // by column; empty: no weights
  std::map<std::vector<int64_t>, int64_t, Lexicographic> column;
  // The numbers that stand for strings in the n-grams. Strings without one are in no n-gram.
  std::map<std::string, int64_t, std::less<>> numbers;

  template <typename T>
  int64_t NumberOf(const T& item) const {
    if constexpr (std::is_same_v<T, std::string_view>) {
      const auto found = numbers.find(item);
      return found == numbers.end() ? -1 : found->second;
    } else {
      return item;
    }
  }
};

// The n-grams of one length are consecutive, from counts[length − 1] on, in order of length.
Status ReadGrams(const Attributes& a, Pool& pool) {
  std::vector<int64_t> items = a.Ints("pool_int64s");
  for (const std::string& text : a.Strings("pool_strings")) {
    items.push_back(pool.numbers.emplace(text, std::ssize(pool.numbers)).first->second);
  }
  const std::vector<int64_t> starts = a.Ints("ngram_counts");
  const std::vector<int64_t> columns = a.Ints("ngram_indexes");
  size_t gram = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t end = i + 1 < starts.size() ? starts[i + 1] : static_cast<int64_t>(items.size());
    const auto length = static_cast<int64_t>(i) + 1;
    if (starts[i] < 0 || end < starts[i] || end > static_cast<int64_t>(items.size()) ||
        (end - starts[i]) % length != 0) {
      return InvalidArgument("{}-grams from {} to {} of a pool of {}", length, starts[i], end,
                             items.size());
    }
    for (int64_t at = starts[i]; at < end; at += length, ++gram) {
      if (gram >= columns.size() || columns[gram] < 0 || columns[gram] >= kMostColumns) {
        return InvalidArgument("n-gram {} has no column among the {} given", gram, columns.size());
      }
      pool.columns = std::max(pool.columns, columns[gram] + 1);
      pool.column.emplace(std::vector<int64_t>(items.begin() + at, items.begin() + at + length),
                          columns[gram]);
    }
  }
  if (gram != columns.size()) {
    return InvalidArgument("{} n-grams, {} columns", gram, columns.size());
  }
  return absl::OkStatus();
}

StatusOr<Pool> ReadPool(const Attributes& a) {
  if (!a.Strings("pool_strings").empty() && !a.Ints("pool_int64s").empty()) {
    return InvalidArgument("its attributes 'pool_int64s' and 'pool_strings' are both given");
  }
  Pool pool;
  pool.shortest = a.Int("min_gram_length", 1);
  pool.longest = a.Int("max_gram_length", 1);
  pool.skips = a.Int("max_skip_count", 0);
  if (pool.shortest < 1 || pool.longest < pool.shortest || pool.longest > kLongestGram ||
      pool.skips < 0 || pool.skips > kMostSkipped) {
    return InvalidArgument("n-grams of {} to {} (at most {}) that skip up to {}", pool.shortest,
                           pool.longest, kLongestGram, pool.skips);
  }
  const std::string mode = a.String("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    return InvalidArgument("mode is '{}', not TF, IDF or TFIDF", mode);
  }
  pool.counts = mode != "IDF";
  if (mode != "TF") pool.weights = a.Floats("weights");
  CHAIRLIFT_RETURN_IF_ERROR(ReadGrams(a, pool));
  if (!pool.weights.empty() && static_cast<int64_t>(pool.weights.size()) < pool.columns) {
    return InvalidArgument("{} weights for {} columns", pool.weights.size(), pool.columns);
  }
  return pool;
}

Status InferTfidfVectorizer(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Pool pool, ReadPool(context.attributes()));
  const SymbolicShape& in = context.shape(0);
  const bool texts = context.dtype(0) == DType::kBytes;
  if (texts ? !context.attributes().Ints("pool_int64s").empty() : !pool.numbers.empty()) {
    return InvalidArgument("its input is {}, but its pool is of another type",
                           DTypeName(context.dtype(0)));
  }
  if (!in.has_rank()) return SetOutput(context, 0, DType::kFloat, SymbolicShape());
  if (in.rank() < 1 || in.rank() > 2) {
    return InvalidArgument("input {} is neither a sequence nor a batch of them", in.ToString());
  }
  std::vector<Dim> out;
  if (in.rank() == 2) out.push_back(in[0]);
  out.emplace_back(pool.columns);
  return SetOutput(context, 0, DType::kFloat, SymbolicShape(std::move(out)));
}

// Its work grows with the square of n if any number of items may be skipped. False: stopped.
template <typename T>
bool Row(const Pool& pool, const T* x, int64_t n, float* out, StopPoll& poll) {
  std::fill_n(out, pool.columns, 0.0f);
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::transform(x, x + n, numbers.begin(), [&](const T& item) { return pool.NumberOf(item); });
  absl::InlinedVector<int64_t, kLongestGram> gram;
  for (int64_t skip = 0; skip <= pool.skips && skip < std::max<int64_t>(n, 1); ++skip) {
    for (int64_t start = 0; start < n; ++start) {
      if (poll.Stopped(16 * pool.longest)) return false;
      gram.clear();
      for (int64_t at = start; at < n && static_cast<int64_t>(gram.size()) < pool.longest;
           at += skip + 1) {
        gram.push_back(numbers[static_cast<size_t>(at)]);
        const auto length = static_cast<int64_t>(gram.size());
        // With one item nothing can be skipped: it counts once.
        if (length < pool.shortest || (length == 1 && skip > 0)) continue;
        const auto found = pool.column.find(std::span<const int64_t>(gram.data(), gram.size()));
        if (found != pool.column.end()) out[found->second] += 1.0f;
      }
    }
  }
  for (int64_t c = 0; c < pool.columns; ++c) {
    if (!pool.counts) out[c] = out[c] > 0 ? 1.0f : 0.0f;
    if (!pool.weights.empty()) out[c] *= pool.weights[static_cast<size_t>(c)];
  }
  return true;
}

template <typename T>
std::unique_ptr<Kernel> MakeRows(Pool pool, const Shape& in) {
  const int64_t rows = in.rank() == 2 ? in[0] : 1;
  const int64_t n = in[in.rank() - 1];
  return MakeKernel([pool = std::move(pool), rows, n](const KernelArgs& args) -> Status {
    const auto* x = static_cast<const T*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    StopPoll poll;
    for (int64_t r = 0; r < rows; ++r) {
      if (!Row(pool, x + r * n, n, out + r * pool.columns, poll)) return StoppedStatus();
    }
    return absl::OkStatus();
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileTfidfVectorizer(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Pool pool, ReadPool(context.attributes));
  const TensorDesc& in = context.inputs[0];
  if (in.dtype == DType::kBytes) return MakeRows<std::string_view>(std::move(pool), in.shape);
  return in.dtype == DType::kInt32 ? MakeRows<int32_t>(std::move(pool), in.shape)
                                   : MakeRows<int64_t>(std::move(pool), in.shape);
}

}  // namespace

void RegisterTfIdfVectorizer(OperatorRegistry& registry) {
  registry.Add({.name = "TfIdfVectorizer",
                .min_opset = 9,
                .input_types = {kIndexTypes | kTextType},
                .infer = InferTfidfVectorizer,
                .compile = CompileTfidfVectorizer});
}

}  // namespace chairlift
