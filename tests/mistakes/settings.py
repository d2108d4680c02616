"""Mistakes in model.yaml, config.pbtxt and the folders of repositories."""

import itertools

from workshop import Mistake, doubling

number = itertools.count()


def yaml(text, model=None, command="inspect"):
    return lambda w: w.run(command, w.model(f"yaml{next(number)}", text, model))


def pbtxt(text, model=None):
    return lambda w: w.run("inspect", w.model(f"pbtxt{next(number)}", model=model, config_pbtxt=text))


def repository(name, *args, **files):
    """Serves a folder of models; `files` by their paths, with `__` for a slash and `_` for a point, and all models too."""
    def serve(w):
        for path, text in files.items():
            w.text(f"{name}/{path.replace('__', '/').replace('_', '.')}", text)
        return w.serve(name, "--exit-on-error", *args)
    return serve


def once(w):
    """A mistake in the only model of a repository is reported once."""
    w.model("single/a", "max_batch_sise: 4\n")
    said = w.serve("single")
    assert said.count("max_batch_sise") == 1, said
    return said


MISTAKES = [
    Mistake("a misspelt setting", yaml("max_batch_sise: 4\n"), "model.yaml: there is no setting 'max_batch_sise'", "there is no",
            r"did you mean 'max_batch_size'\?"),
    Mistake("a misspelt setting of the only model", once, "there is no setting 'max_batch_sise'", "there is no",
            r"did you mean 'max_batch_size'\?"),
    Mistake("a number that is a word", yaml("max_batch_size: many\n"), "max_batch_size is 'many'", "must be a number of rows",
            r"0 \(chosen from the model\) to 65536"),
    Mistake("a negative number", yaml("max_batch_size: -3\n"), "max_batch_size is '-3'", "must be a number of rows", "0 .* to 65536"),
    Mistake("a tab", yaml("policy: window\n\tmax_batch_size: 4\n"), "model.yaml: it is not YAML", "line 2, column 1: illegal tab",
            "tab when looking for indentation"),
    Mistake("a setting twice", yaml("max_batch_size: 4\nmax_batch_size: 8\n"), "line 2: max_batch_size", "given twice", "line 2"),
    Mistake("an equals sign", yaml("max_batch_size=4\n"), "the file must be a map of settings", "must be a map", "one a line: `.*: VALUE`"),
    Mistake("a misspelt policy", yaml("policy: windows\n"), "no batching policy 'windows'", "there is no", "did you mean 'window'"),
    Mistake("a policy of encoders", yaml("policy: packed\n"), "policy 'packed' cannot serve this model", r"no input is \[batch, length",
            "leave `policy` out"),
    Mistake("a policy of decoders", yaml("policy: continuous\n"), "policy 'continuous' cannot serve this model",
            "not of the kind that the policy is for", "leave `policy` out"),
    Mistake("a setting of another policy", yaml("time_slice_us: 3\n"), "time_slice_us is 3", "policy 'window' does not use",
            "'cellular' or 'graph_merge' or 'bucketed'"),
    Mistake("a setting of Triton's", yaml("dynamic_batching: {}\n"), "'dynamic_batching'", "a setting of Triton's config.pbtxt",
            "in a model.yaml it is queue_delay_us"),
    Mistake("a word for true", yaml("prefix_caching: maybe\n"), "prefix_caching is 'maybe'", "must be", "true or false"),
    Mistake("a file that is missing", yaml("file: model_int8.onnx\n"), "has no version", "there is no model_int8.onnx",
            "which belongs in .*/1;.*model.onnx"),
    Mistake("a version that is missing", yaml("versions: [7]\n"), "version 7", "does not exist", "there are: 1"),
    Mistake("a name that the model lacks", yaml("names: {z: a}\n"), "no input or output 'z'", "the model has no", "there are: 'x', 'y'"),
    Mistake("a device", yaml("device: gpu\n"), "no device 'gpu'", "there is no", "use cpu, cuda"),
    Mistake("a precision", yaml("precision: int4\n"), "precision is 'int4'", "must be", "float32, tf32, float16, bfloat16 or int8"),
    Mistake("the beginning of a setting", yaml("max_batch: 4\n"), "no setting 'max_batch'", "there is no",
            "did you mean 'max_batch_size'"),
    Mistake("a misspelt pass", yaml("disabled_passes: [fold_constant]\n"), "no pass 'fold_constant'", "there is no",
            "did you mean 'fold_constants'"),
    Mistake("a pooling", yaml("pooling: average\n"), "pooling is 'average'", "must be", "cls, max, mean"),
    Mistake("batches of a model with a fixed batch", yaml("max_batch_size: 8\n", doubling(1)), "max_batch_size is 8",
            "dimension 0 of input 'x' is fixed to 1", "leave max_batch_size out|export the model with an open batch"),
    Mistake("workers of an ONNX model", yaml("workers: 2\n"), "setting 'workers'", "applies only to Python models", "`python: my.py:predict`"),
    Mistake("a state that the model lacks", yaml("sequence_state: {state: x}\n"), "sequence_state: the model has no output 'state'",
            "has no output", "there are: 'y'"),
    Mistake("an exit that is not an output", yaml("exits: [{output: a}]\n"), "exits: 'a'", "not an output", "there are: 'y'"),
    Mistake("a mask that the model lacks", yaml("padding_mask: mask\n"), "padding_mask is 'mask'", "the model has no such input",
            r"there are: 'x'|its inputs are"),
    Mistake("too many stages", yaml("policy: staged\nstages: 400\n"), "stages is '400'", "must be a number of stages", "2 to 64"),
    Mistake("a Python file that is missing",
            lambda w: (w.text("gone/1/other.py", ""), w.text("gone/model.yaml", "python: gone.py:predict\n"),
                       w.serve("gone", "--allow-plugins"))[2],
            "has no version", "there is no gone.py", "which belongs in .*gone/1"),
    Mistake("a Python model without permission",
            lambda w: (w.text("code/1/f.py", "def predict(x): return x\n"), w.text("code/model.yaml", "python: f.py:predict\n"),
                       w.serve("code"))[2],
            r"model 'code'.*Python function \(f.py:predict\)", "rights of this process", "--allow-plugins"),
    Mistake("a pipeline of a model that is missing", repository("steps", pipe__model_yaml="steps: [{model: b}]\n"),
            r"model 'pipe': step 1 \(b\)", "no model 'b' in the model repository", r"it has: 'pipe'|there are: 'pipe'"),
    Mistake("a pipeline of itself", repository("loop", pipe__model_yaml="steps: [{model: pipe}]\n"),
            "model 'pipe': step 1", r"leads back to itself \(pipe → pipe\)", "order the models without that"),
    Mistake("a misspelt word of a step", repository("words2", pipe__model_yaml="steps: [{modle: a}]\n"),
            r"no setting 'modle' in steps\[0\]", "there is no", "did you mean 'model'"),
    Mistake("config.pbtxt: a misspelt field", pbtxt("max_batch_sise: 4\n"), "config.pbtxt: line 1, column 15",
            "there is no field 'max_batch_sise'", "did you mean 'max_batch_size'"),
    Mistake("config.pbtxt: a list that does not end", pbtxt("max_batch_size: 4\ninput [ { name: \"x\"\n"), "config.pbtxt: line 3",
            "Expected", "write protobuf's text format"),
    Mistake("config.pbtxt: JSON", pbtxt('{"max_batch_size": 4}'), "config.pbtxt: line 1, column 1", "Expected identifier",
            "write protobuf's text format, as max_batch_size: 8"),
    Mistake("config.pbtxt: another backend", pbtxt('backend: "pytorch"\n'), "backend is 'pytorch'", "only ONNX models are served",
            "backend 'onnxruntime'"),
    Mistake("config.pbtxt: another platform", pbtxt('platform: "tensorrt_plan"\n'), "platform is 'tensorrt_plan'",
            "only ONNX models", "platform 'onnxruntime_onnx'"),
    Mistake("config.pbtxt: another name", pbtxt('name: "other"\n'), "its name is 'other'", "its folder's name is", "must be equal"),
    Mistake("config.pbtxt: a type", pbtxt('input [{name: "x" data_type: FP32 dims: [4]}]\n'), "'FP32'", "not a value of 'data_type'",
            "write types as TYPE_FP32"),
    Mistake("config.pbtxt: a version that is missing", pbtxt("version_policy: {specific: {versions: [7]}}\n"), "version 7",
            "does not exist", "there are: 1"),
    Mistake("config.pbtxt: an input that the model lacks",
            lambda w: w.serve(w.model("io", config_pbtxt='max_batch_size: 4\ninput [{name: "input" data_type: TYPE_FP32 dims: [4]}]\n')),
            "config.pbtxt: the model has no input 'input'", "has no input", "there are: 'x'"),
    Mistake("config.pbtxt: a type that the model's is not",
            lambda w: w.serve(w.model("iotype", config_pbtxt='max_batch_size: 4\ninput [{name: "x" data_type: TYPE_INT32 dims: [4]}]\n')),
            "config.pbtxt: input 'x'", "int32 there, and float32 in the model", "TYPE_FP32|float32"),
    Mistake("config.pbtxt: other dims",
            lambda w: w.serve(w.model("iodims", config_pbtxt='max_batch_size: 4\ninput [{name: "x" data_type: TYPE_FP32 dims: [5]}]\n')),
            "input 'x'", r"\[.*5\]|5", r"\[batch,4\]|4"),
    Mistake("steps that are a word", yaml("steps: a\n"), "steps is 'a'", "must be", "a list of steps"),
    Mistake("cells that are a word", yaml("cells: x\n"), "a model made of cells", "needs both", "`cells` and `unfold`"),
    Mistake("a state that is a list", yaml("sequence_state: [a]\n"), "sequence_state", "must be a map", "from outputs to the inputs"),
    Mistake("a word for exits", yaml("exits: true\n"), "exits is 'true'", "must be", "a list of exits"),
    Mistake("a file for a function", yaml("python: my.py\n"), "python is 'my.py'", "must be a function", "as my.py:predict"),
    Mistake("a module for a function", yaml("python: my.predict\n"), "python is 'my.predict'", "must be a function", "as my.py:predict"),
    Mistake("another word for a GPU", yaml("device: gpu\n"), "no device 'gpu'", "there is no", "use cpu, cuda"),
    Mistake("a file above the folder", yaml("file: ../model.onnx\n"), r"file is '\.\./model.onnx'", "must be the name", "in the model's folder"),
    Mistake("names that are a list", yaml("tensor_names: [a]\n"), "tensor_names", "must be a map", "from names of inputs and outputs"),
    Mistake("the newest version", yaml("versions: newest\n"), "versions is 'newest'", "must be", "latest, all, or a list of numbers"),
    Mistake("a time with a unit in settings", yaml("default_timeout_us: 5s\n"), "default_timeout_us is '5s'", "must be a number", "of microseconds"),
    Mistake("half a row", yaml("max_batch_size: 2.5\n"), "max_batch_size is '2.5'", "must be a number of rows", "0 .* to 65536"),
    Mistake("a list of settings", yaml("- max_batch_size: 3\n"), "model.yaml", "must be a map", "max_batch_size: VALUE"),
    Mistake("line ends of Windows", yaml("max_batch_size: 4\r\nmax_queue_size: x\r\n"),
            "line 2: max_queue_size is 'x'", "must be a number", "1 to 2147483647"),
]
