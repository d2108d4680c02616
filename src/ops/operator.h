// An operator: a contract, a shape rule, and a way to make kernels for concrete shapes.
//
// The life cycle of an operator in a model:
//   1. infer()    at import, with symbolic shapes; again per shape class, with concrete ones; and,
//                 if shapes depend on data, again at run time with the data.
//   2. compile()  once per node and shape class: everything that can be decided in advance is
//                 decided here (strides, ISA, primitives, packed weights), nothing in Run().
//   3. Run()      on the steady-state path: pointers in, results out, no allocation.
// An operator whose output shapes depend on its own computation (NonZero, Unique) has evaluate()
// instead of compile().
//
// An operator supports only one form, that of the newest opset it is listed with: the importer
// (graph/onnx/normalise) rewrites older forms.
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

// The memory layout of an activation.
enum class Layout : uint8_t {
  kRowMajor,
  // [N, ceil(C/B), spatial..., B] for a tensor of logical shape [N, C, spatial...], with B =
  // ChannelBlock() channels per block. The padding of the last block is zero: every kernel may rely
  // on that, and must preserve it.
  kChannelBlocked,
};
// 16 with AVX-512, else 8.
int ChannelBlock();
// Blocks for `channels` channels; the last may be padded.
inline int64_t ChannelBlocks(int64_t channels) {
  return (channels + ChannelBlock() - 1) / ChannelBlock();
}
// Whether this number of channels is worth blocking: at most half of the stored values are padding.
inline bool FillsBlocks(int64_t channels) { return 2 * channels >= ChannelBlock(); }

// --- Shape rules ---------------------------------------------------------------------------------

// What is known about a value during shape inference.
struct ValueInfo {
  DType dtype = DType::kUndefined;  // kUndefined: an absent optional input
  SymbolicShape shape;
  // The value itself if known: a constant, folded, or already computed. May be null.
  const Tensor* value = nullptr;
  // For integer tensors of rank 0 or 1 that carry shapes: the elements, as far as known, so that
  // Shape → Gather → Concat → Reshape keeps symbols. Ignored if `value` is set.
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
  // elements; nullopt if nothing is known.
  std::optional<std::vector<Dim>> elements(int i) const;
  // The elements if all of them are numbers.
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
  // Whether its last block of channels is padded.
  bool filled_up() const {
    return layout == Layout::kChannelBlocked && shape[1] % ChannelBlock() != 0;
  }
  // The shape in memory: [N, ceil(C/B), spatial..., B] if it is blocked.
  Shape StoredShape() const;
  size_t byte_size() const {
    return static_cast<size_t>((filled_up() ? StoredShape() : shape).NumElements()) *
           DTypeSize(dtype);
  }
};

// Weights in the layouts that kernels need, made once per model and shared by all its kernels.
// Thread-safe.
class WeightCache {
 public:
  WeightCache();
  ~WeightCache();
  using Pack = absl::FunctionRef<StatusOr<Tensor>()>;
  // The packed form of `weight` with the name `key`, made by `pack` on first use. Tensors with the
  // same memory but other types or shapes have separate forms. `key` must include everything else
  // that the form depends on. Lives as long as the cache.
  StatusOr<Tensor> Get(const Tensor& weight, const std::string& key, Pack pack);
  size_t byte_size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Addresses are in the memory of the kernel's device; the spans are valid until Run() returns.
struct KernelArgs {
  std::span<const void* const> inputs;  // null for absent optional inputs
  std::span<void* const> outputs;       // null for outputs that nothing reads
  void* scratch;                        // scratch_bytes(), 64-byte aligned; null if 0
  Team& team;
  int worker;  // the worker number of this thread, as in Team::For
  Stream& stream = CpuStream();
};

// One node bound to one shape class. Run() may be called from several threads concurrently with
// different arguments; a kernel with mutable state keeps it per worker.
//
// On the CPU Run() computes. On another device it enqueues on the stream: the memory is valid in
// the stream's order, and the kernel must outlive the enqueued work.
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

// Which implementation of a family a kernel was made by.
struct KernelChoice {
  // The one to use, by name; empty: the first that does not refuse.
  std::string only = {};
  std::string taken = {};
  struct Refusal {
    std::string name, why;
  };
  std::vector<Refusal> refused = {};  // those tried before
};

struct CompileContext {
  const Attributes& attributes;
  std::span<const TensorDesc> inputs;        // !present() for absent optional inputs
  std::span<const TensorDesc> outputs;       // as returned by infer(), with the assigned layouts
  std::span<const Tensor* const> constants;  // constants[i]: input i if it is a constant, or null
  WeightCache& weights;
  // Workers that the kernel should be able to use if it is worth it.
  int width = 1;
  KernelChoice* choice = nullptr;  // set by families of several implementations; may be null
  // The device that the kernel runs on; constants are in host memory.
  const Device& device = CpuDevice();

  bool has_input(int i) const { return i < static_cast<int>(inputs.size()) && inputs[i].present(); }
  const Tensor* constant(int i) const {
    return i < static_cast<int>(constants.size()) ? constants[i] : nullptr;
  }
};

struct EvaluateContext {
  const Attributes& attributes;
  std::span<const Tensor> inputs;  // row-major; !present() if absent
  int num_outputs;
  Team& team;
  int worker;
};

// --- Operators -----------------------------------------------------------------------------------

// Which operands of a node are channel-blocked when the node runs in its blocked form; all others
// are then row-major. Bit i stands for input (output) i.
struct BlockedForm {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  // Worth reordering row-major inputs for (a convolution). Otherwise the form is used only if an
  // input is already blocked (pooling, Concat along channels).
  bool anchor = false;
};

struct FusedStep;

struct OperatorDef {
  // "" for ai.onnx, "chairlift" for operators that only our own passes and rules write.
  std::string domain = {};
  std::string name = {};
  // The first opset of `domain` with this form (after normalisation).
  int min_opset = 1;

  // Number of inputs and their supported element types; the last set also applies to all inputs
  // after it.
  int min_inputs = 1;
  int max_inputs = 1;  // kVariadic
  int min_outputs = 1;
  int max_outputs = 1;
  std::vector<TypeSet> input_types = {};

  Status (*infer)(InferContext&) = nullptr;
  // The operator's axis map (ops/axis_map.h), called like infer(). Null if it depends on data or is
  // unknown.
  StatusOr<AxisMap> (*axes)(const InferContext&) = nullptr;
  StatusOr<std::unique_ptr<Kernel>> (*compile)(const CompileContext&) = nullptr;
  StatusOr<std::vector<Tensor>> (*evaluate)(const EvaluateContext&) = nullptr;
  // The input that output 0 certainly equals in elements and shape; −1: none. Called if input 0 and
  // output 0 have the same element type, which may be sufficient; null: never.
  int (*hands_on)(const Attributes& attributes, std::span<const ValueInfo> inputs,
                  std::span<const ValueInfo> outputs) = nullptr;
  // The operator as a step of chairlift::FusedElementwise, if its name is not enough: see StepOf()
  // in ops/elementwise/fused_elementwise.h.
  std::optional<FusedStep> (*step)(const Attributes& attributes,
                                   std::span<const ValueInfo> inputs) = nullptr;

  // Output 0 is input 0's bytes with another shape: no kernel runs.
  bool is_view = false;
  // Every element of output 0 is one of input 0's, possibly with another type. Also true for views:
  // use OnlyMoves().
  bool only_moves = false;
  // Output 0 may overwrite input 0 or 1 if type, shape and layout are the same.
  bool in_place = false;
  // Elementwise in any layout, if all full-size operands have the same shape and layout.
  bool layout_agnostic = false;
  // The node's blocked form, or nullopt if it has none; null for operators that never have one.
  // Called at load (graph/passes/assign_layouts), so dimensions may be symbols. A blocked operand
  // needs rank >= 3 and a known number of channels for which FillsBlocks() is true; the pass checks
  // that for every operand. The output's shape must follow from the inputs' shapes and from
  // constants. compile() then gets these layouts in its TensorDescs. If layouts differ between a
  // producer and a consumer, the pass inserts a chairlift::Reorder (one input, one output; the
  // layouts of its TensorDescs give the direction; no attributes).
  std::optional<BlockedForm> (*blocked_form)(const Attributes& attributes,
                                             std::span<const ValueInfo> inputs,
                                             std::span<const ValueInfo> outputs) = nullptr;
  // Computes float16/bfloat16 itself. Otherwise CompileOperator() adds conversions.
  bool native_half = false;
  // Random or stateful: never folded.
  bool deterministic = true;
  // Computed from its input's dimensions: reads no element.
  bool gives_sizes = false;
  // Multiply-adds of a product or a convolution, which outweigh its reads; null for other
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
  // Null if nothing is registered for the name. Domains "" and "ai.onnx" are the same.
  const OperatorDef* Find(std::string_view domain, std::string_view name) const;
  std::vector<const OperatorDef*> All() const;

  // Every operator of this build.
  static const OperatorRegistry& Builtin();

 private:
  std::vector<std::unique_ptr<OperatorDef>> defs_;
};

// The kernels of a device other than the CPU (whose kernels are OperatorDef::compile). Thread-safe.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  // Null if it has no kernel for this operator; Unimplemented if it has none for these operands.
  virtual StatusOr<std::unique_ptr<Kernel>> Compile(const OperatorDef& def,
                                                    const CompileContext& context) const = 0;
};

// The kernel for context.device. On the CPU, def.compile() plus what every operator shares:
// float16/bfloat16 around kernels that compute in float, and an error with the operator's name.
// Unimplemented has the operator and the device if there is no kernel.
StatusOr<std::unique_ptr<Kernel>> CompileOperator(const OperatorDef& def,
                                                  const CompileContext& context);
// def.evaluate(), in the same way.
StatusOr<std::vector<Tensor>> EvaluateOperator(const OperatorDef& def,
                                               const EvaluateContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_OPERATOR_H_
