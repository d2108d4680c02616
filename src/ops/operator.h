// What an operator is: a contract, a shape rule, and a way to make kernels for concrete shapes.
//
// The life of an operator in a model:
//   1. infer()    at import, with symbolic shapes; again per shape class, with concrete ones; and,
//                 where shapes depend on data, again at run time with the data at hand.
//   2. compile()  once per node and shape class: everything that can be decided ahead is decided
//                 here (strides, ISA, primitives, packed weights), none of it in Run().
//   3. Run()      on the steady-state path: pointers in, results out, no allocation.
// An operator whose output shapes only its own computation gives (NonZero, Unique) has
// evaluate() instead of compile().
//
// An operator sees one form only, the one of the newest opset it is listed with: the importer
// (graph/onnx/normalise) rewrites older forms into it.
#ifndef CHAIRLIFT_OPS_OPERATOR_H_
#define CHAIRLIFT_OPS_OPERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "chairlift/tensor.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"
#include "ops/attributes.h"
#include "tensor/dtype.h"
#include "tensor/symbolic_shape.h"

namespace chairlift {

// How an activation's elements lie in memory.
enum class Layout : uint8_t {
  kRowMajor,
  // [N, ceil(C/B), spatial..., B] for a tensor of logical shape [N, C, spatial...], with B =
  // ChannelBlock() channels to a block. What fills up the last block is zero: every kernel may rely
  // on that, and keeps it so.
  kChannelBlocked,
};
// 16 with AVX-512, else 8.
int ChannelBlock();
// Blocks for so many channels, the last perhaps filled up.
inline int64_t ChannelBlocks(int64_t channels) {
  return (channels + ChannelBlock() - 1) / ChannelBlock();
}
// Whether so many channels are worth blocking: at most half of what is stored fills up.
inline bool FillsBlocks(int64_t channels) { return 2 * channels >= ChannelBlock(); }

// --- Shape rules ---------------------------------------------------------------------------------

// What is known of a value when shapes are inferred.
struct ValueInfo {
  DType dtype = DType::kUndefined;  // kUndefined: an optional input that is absent
  SymbolicShape shape;
  // The value itself where it is known: a constant, folded, or computed already. May be null.
  const Tensor* value = nullptr;
  // For integer tensors of rank 0 or 1 that carry shapes: the elements, as far as known, so that
  // Shape → Gather → Concat → Reshape keeps symbols. Ignored where `value` is set.
  std::optional<std::vector<Dim>> elements;
};

struct AxisMap;

class InferContext {
 public:
  InferContext(const Attributes& attributes, std::span<const ValueInfo> inputs, int num_outputs)
      : attributes_(attributes), inputs_(inputs), outputs_(num_outputs) {}

  const Attributes& attributes() const { return attributes_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  bool has_input(int i) const { return i < num_inputs() && inputs_[i].dtype != DType::kUndefined; }
  const ValueInfo& input(int i) const { return inputs_[i]; }
  DType dtype(int i) const { return inputs_[i].dtype; }
  const SymbolicShape& shape(int i) const { return inputs_[i].shape; }
  // The known value of input i, or null.
  const Tensor* value(int i) const { return has_input(i) ? inputs_[i].value : nullptr; }
  // The elements of integer input i of rank ≤ 1 as dimensions, from its value or its tracked
  // elements; nullopt where nothing is known.
  std::optional<std::vector<Dim>> elements(int i) const;
  // The elements where all of them are numbers.
  std::optional<std::vector<int64_t>> known_elements(int i) const;

  void set_output(int i, DType dtype, SymbolicShape shape) {
    outputs_[i].dtype = dtype;
    outputs_[i].shape = std::move(shape);
  }
  void set_output_elements(int i, std::vector<Dim> elements) {
    outputs_[i].elements = std::move(elements);
  }
  std::vector<ValueInfo>& outputs() { return outputs_; }

 private:
  const Attributes& attributes_;
  std::span<const ValueInfo> inputs_;
  std::vector<ValueInfo> outputs_;
};

// --- Kernels -------------------------------------------------------------------------------------

// A value as a kernel is compiled for it.
struct TensorDesc {
  DType dtype = DType::kUndefined;
  Shape shape;  // logical
  Layout layout = Layout::kRowMajor;
  bool present() const { return dtype != DType::kUndefined; }
  int64_t size() const { return shape.NumElements(); }
  // Its last block of channels is filled up.
  bool filled_up() const {
    return layout == Layout::kChannelBlocked && shape[1] % ChannelBlock() != 0;
  }
  // As it lies in memory: [N, ceil(C/B), spatial..., B] where it is blocked.
  Shape StoredShape() const;
  size_t byte_size() const {
    return static_cast<size_t>((filled_up() ? StoredShape() : shape).NumElements()) *
           DTypeSize(dtype);
  }
};

// Weights in the layout a kernel wants, made once per model and shared by all its kernels.
// Thread-safe.
class WeightCache {
 public:
  WeightCache();
  ~WeightCache();
  using Pack = absl::FunctionRef<StatusOr<Tensor>()>;
  // The packed form of `weight` named by `key`, made by `pack` on first use. Tensors of one memory
  // and other types or shapes have forms of their own; `key` must differ for whatever else the form
  // depends on. Lives as long as the cache.
  StatusOr<Tensor> Get(const Tensor& weight, const std::string& key, Pack pack);
  size_t byte_size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Addresses are in the memory of the kernel's device; the spans end with Run().
struct KernelArgs {
  std::span<const void* const> inputs;  // null for absent optional inputs
  std::span<void* const> outputs;       // null for outputs that nobody reads
  void* scratch;                        // scratch_bytes(), 64-byte aligned; null if 0
  Team& team;
  int worker;  // the worker number this thread runs under, as in Team::For
  Stream& stream = CpuStream();
};

// One node bound to one shape class. Run() may be called from several threads at once with
// different arguments; a kernel that keeps mutable state keeps it per worker.
//
// On the CPU Run() computes. On another device it enqueues on the stream: the memory is valid in
// the stream's order, and the kernel outlives what it enqueued.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Run(const KernelArgs& args) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

// A kernel from a callable `Status(const KernelArgs&)`.
template <typename F>
std::unique_ptr<Kernel> MakeKernel(F run, size_t scratch_bytes = 0) {
  class Lambda final : public Kernel {
   public:
    Lambda(F run, size_t scratch_bytes) : run_(std::move(run)), scratch_bytes_(scratch_bytes) {}
    Status Run(const KernelArgs& args) const override { return run_(args); }
    size_t scratch_bytes() const override { return scratch_bytes_; }

   private:
    F run_;
    size_t scratch_bytes_;
  };
  return std::make_unique<Lambda>(std::move(run), scratch_bytes);
}

// Which of a family's implementations a kernel was made by.
struct KernelChoice {
  // The one to take, by name; empty: the first that does not refuse.
  std::string only = {};
  std::string taken = {};
  struct Refusal {
    std::string name, why;
  };
  std::vector<Refusal> refused = {};  // before that
};

struct CompileContext {
  const Attributes& attributes;
  std::span<const TensorDesc> inputs;   // !present() for absent optional inputs
  std::span<const TensorDesc> outputs;  // as infer() gave them, layouts as assigned
  std::span<const Tensor* const>
      constants;  // constants[i]: input i where it is a constant, or null
  WeightCache& weights;
  int width = 1;                   // workers the kernel should be able to use when it is worth it
  KernelChoice* choice = nullptr;  // filled in by families of several implementations; may be null
  const Device& device = CpuDevice();  // on which the kernel runs; constants are the host's

  bool has_input(int i) const { return i < static_cast<int>(inputs.size()) && inputs[i].present(); }
  const Tensor* constant(int i) const {
    return i < static_cast<int>(constants.size()) ? constants[i] : nullptr;
  }
};

struct EvaluateContext {
  const Attributes& attributes;
  std::span<const Tensor> inputs;  // row-major; !present() where absent
  int num_outputs;
  Team& team;
  int worker;
};

// --- Operators -----------------------------------------------------------------------------------

// Which operands of a node are channel-blocked when the node runs in its blocked form; all others
// are row-major then. Bit i stands for input (output) i.
struct BlockedForm {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  // Worth reordering row-major inputs for (a convolution); otherwise the form is taken only where
  // an input is blocked already (pooling, Concat along channels).
  bool anchor = false;
};

struct FusedStep;

struct OperatorDef {
  std::string domain = {};  // "" for ai.onnx, "chairlift" for the targets of our own fusions
  std::string name = {};
  // The first opset of `domain` whose form (after normalisation) this is.
  int min_opset = 1;

  // Inputs: how many, and the element types taken; the last set also holds for all after it.
  int min_inputs = 1;
  int max_inputs = 1;  // kVariadic
  int min_outputs = 1;
  int max_outputs = 1;
  std::vector<TypeSet> input_types = {};

  Status (*infer)(InferContext&) = nullptr;
  // What it does to axes (ops/axis_map.h), asked as infer() is; null where only the data decide, or
  // nothing is known.
  StatusOr<AxisMap> (*axes)(const InferContext&) = nullptr;
  StatusOr<std::unique_ptr<Kernel>> (*compile)(const CompileContext&) = nullptr;
  StatusOr<std::vector<Tensor>> (*evaluate)(const EvaluateContext&) = nullptr;
  // The input that output 0 certainly is, in elements and shape; −1: none. Asked where input 0 and
  // output 0 have one element type, which may be all that it takes; null: never.
  int (*hands_on)(const Attributes& attributes, std::span<const ValueInfo> inputs,
                  std::span<const ValueInfo> outputs) = nullptr;
  // What it is as a step of chairlift::FusedElementwise, where its name alone does not say so: see
  // StepOf() in ops/elementwise/fused_elementwise.h.
  std::optional<FusedStep> (*step)(const Attributes& attributes,
                                   std::span<const ValueInfo> inputs) = nullptr;

  // Output 0 is input 0's bytes under another shape: no kernel runs.
  bool is_view = false;
  // Every element of output 0 is one of input 0's, perhaps of another type. True of views too: ask
  // OnlyMoves().
  bool only_moves = false;
  // Output 0 may overwrite input 0 or 1 where type, shape and layout are the same.
  bool in_place = false;
  // Works on elements one by one whatever their layout, where all full-size operands share shape
  // and layout.
  bool layout_agnostic = false;
  // The node's blocked form, or nullopt where it has none; null for operators that never have one.
  // Asked at load (graph/passes/assign_layouts), so dimensions may be symbols; a blocked operand
  // needs rank >= 3 and a known number of channels that FillsBlocks(), which the pass checks for
  // every operand named. The output's shape must follow from the inputs' shapes and from constants.
  // compile() then sees these layouts in its TensorDescs. Where layouts differ between a producer
  // and a consumer, the pass puts a chairlift::Reorder (one input, one output; the layouts of its
  // TensorDescs say which way; no attributes).
  std::optional<BlockedForm> (*blocked_form)(const Attributes& attributes,
                                             std::span<const ValueInfo> inputs,
                                             std::span<const ValueInfo> outputs) = nullptr;
  // Computes float16/bfloat16 itself. Otherwise CompileOperator() converts around it.
  bool native_half = false;
  // Random or stateful: never folded.
  bool deterministic = true;
  // Made of its input's dimensions: reads no element.
  bool gives_sizes = false;
  // Multiply-adds of a product or a convolution, which outweigh what it reads; null for other
  // operators.
  double (*multiply_adds)(const Attributes& attributes, std::span<const TensorDesc> inputs,
                          std::span<const TensorDesc> outputs) = nullptr;
  // No kernel: the runtime runs its sub-graphs (If, Loop, Scan).
  bool runs_bodies = false;

  bool OnlyMoves() const { return is_view || only_moves; }

  static constexpr int kVariadic = 1 << 20;
};

class OperatorRegistry {
 public:
  void Add(OperatorDef def);
  // Null where nothing is registered for the name. Domains "" and "ai.onnx" are one.
  const OperatorDef* Find(std::string_view domain, std::string_view name) const;
  std::vector<const OperatorDef*> All() const;

  // Every operator of this build.
  static const OperatorRegistry& Builtin();

 private:
  std::vector<std::unique_ptr<OperatorDef>> defs_;
};

// The kernels of a device other than the CPU, whose own are OperatorDef::compile. Thread-safe.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  // Null where it has none for this operator; Unimplemented where it has none for these operands.
  virtual StatusOr<std::unique_ptr<Kernel>> Compile(const OperatorDef& def,
                                                    const CompileContext& context) const = 0;
};

// The kernel of context.device. On the CPU def.compile() with what every operator shares:
// float16/bfloat16 around kernels that compute in float, and an error that names the operator.
// Unimplemented names the operator and the device where it has no kernel.
StatusOr<std::unique_ptr<Kernel>> CompileOperator(const OperatorDef& def,
                                                  const CompileContext& context);
// def.evaluate(), likewise.
StatusOr<std::vector<Tensor>> EvaluateOperator(const OperatorDef& def,
                                               const EvaluateContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_OPERATOR_H_
