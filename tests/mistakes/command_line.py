"""Mistakes on the command line of `chairlift serve`: commands, flags, values, ports, and what is named to be served."""

import socket

from workshop import Mistake, doubling, nobody


def busy(flag, other):
    """Asks for a port that is in use."""
    def serve(w):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            return w.run("serve", "doubling.onnx", flag, str(taken.getsockname()[1]), other, "0")
    return serve


def serve(*args, **options):
    return lambda w: w.serve(*args, **options)


MISTAKES = [
    Mistake("a misspelt command", lambda w: w.run("sreve", "doubling.onnx"),
            "no command 'sreve'", "there is no", r"did you mean 'serve'\?"),
    Mistake("another server's command", lambda w: w.run("start", "model"),
            "no command 'start'", "there is no", "serve.*inspect.*bench"),
    Mistake("no command before a model", lambda w: w.run("doubling.onnx"),
            "no command 'doubling.onnx'", "there is no", "`chairlift serve doubling.onnx`"),
    Mistake("no command", lambda w: w.run(), "chairlift: name a command", "name a command", "serve, run, inspect"),
    Mistake("a misspelt flag", serve("doubling.onnx", "--http-prot", "9"),
            "no flag --http-prot", "there is no", "did you mean '--http-port'"),
    Mistake("a short flag", serve("doubling.onnx", "-p", "8000"), "no flag -p", "there is no", "use --http-port"),
    Mistake("--host", serve("doubling.onnx", "--host", "0.0.0.0"), "no flag --host", "there is no", "use --address"),
    Mistake("--grpc-port", serve("doubling.onnx", "--grpc-port", "8001"),
            "no flag --grpc-port", "HTTP only, not gRPC", "use --http-port"),
    Mistake("a setting as a flag", serve("doubling.onnx", "--max-batch-size", "8"),
            "no flag --max-batch-size", "a setting of models", "--set max_batch_size=VALUE"),
    Mistake("--threads", serve("doubling.onnx", "--threads", "2"), "no flag --threads", "there is no", "use --workers"),
    Mistake("--gpus", serve("doubling.onnx", "--gpus", "all"), "no flag --gpus", "there is no", "use --device cuda"),
    Mistake("--api-key", serve("doubling.onnx", "--api-key", "x"),
            "no flag --api-key", "there is no", r"proxy.*docs/deploy/security\.md"),
    Mistake("--verbose", serve("doubling.onnx", "--verbose"), "no flag --verbose", "there is no", "--log-level debug"),
    Mistake("a flag without its value", lambda w: w.run("serve", "doubling.onnx", "--http-port"),
            "--http-port", "needs a value", "serve --help"),
    Mistake("a flag twice", lambda w: w.run("serve", "doubling.onnx", "--http-port", "1", "--http-port", "2"),
            "--http-port", "given 2 times", "give it once"),
    Mistake("a port that is a word", lambda w: w.run("serve", "doubling.onnx", "--http-port", "http"),
            "--http-port: 'http'", "not a number", "from 0 to 65535"),
    Mistake("a port out of range", lambda w: w.run("serve", "doubling.onnx", "--http-port", "70000"),
            "--http-port: '70000'", "not a number from", "0 to 65535"),
    Mistake("a port in use", busy("--http-port", "--metrics-port"),
            r"--http-port: cannot listen on 127\.0\.0\.1:\d+", "already in use", "another port, or 0 for any"),
    Mistake("a metrics port in use", busy("--metrics-port", "--http-port"),
            r"--metrics-port: cannot listen on 127\.0\.0\.1:\d+", "already in use", "another port, or 0 for any"),
    Mistake("equal ports", lambda w: w.run("serve", "doubling.onnx", "--http-port", "24123", "--metrics-port", "24123"),
            "--http-port and --metrics-port", "both 24123", "each needs its own"),
    Mistake("an address of another machine", serve("doubling.onnx", "--address", "8.8.8.8"),
            "--address: 8.8.8.8", "not an address of this machine", "0.0.0.0 listens on all"),
    Mistake("an address with a port", serve("doubling.onnx", "--address", "0.0.0.0:8000"),
            "--address: '0.0.0.0:8000'", "not a numeric IP address", "such as 127.0.0.1"),
    Mistake("a unit that is none", serve("doubling.onnx", "--memory-budget", "4GO"),
            "--memory-budget: '4GO'", "not a number of bytes", "64KiB or 2GiB"),
    Mistake("a budget of one byte", serve("doubling.onnx", "--memory-budget", "1"),
            "--memory-budget: 1 bytes", "too few", "1MiB or more, or 0"),
    Mistake("a level of the log", serve("doubling.onnx", "--log-level", "warn-all"),
            "--log-level: 'warn-all'", "not one of", "trace, debug, info, warning"),
    Mistake("a control mode of Triton's", serve("doubling.onnx", "--model-control-mode", "poll"),
            "--model-control-mode: 'poll'", "not one of", "none, explicit"),
    Mistake("a model that the repository lacks", serve("--model-repository", ".", "--load-model", "modle"),
            "no model 'modle'", "in the model repository", "did you mean 'model'"),
    Mistake("a repository that does not exist", serve("--model-repository", "modle"),
            "--model-repository: there is no file or folder 'modle'", "there is no", "did you mean 'model'"),
    Mistake("a device of another framework", serve("doubling.onnx", "--device", "gpu"),
            "device 'gpu'", "there is no", "use cpu, cuda"),
    Mistake("cores that the machine lacks", serve("doubling.onnx", "--cores", "0,9999"),
            "core 9999", "not among those this process may run on", r": 0"),
    Mistake("a range of cores", serve("doubling.onnx", "--cores", "0-3"),
            "--cores: '0-3'", "not a number", "write all of them, as 0,1,2"),
    Mistake("workers by the thousand", serve("doubling.onnx", "--workers", "100000"),
            "--workers: '100000'", "not a number from", "0 to 256"),
    Mistake("nothing to serve", serve(), "nothing to serve", "nothing", "name a model.onnx, a my.py:function"),
    Mistake("a misspelt file", serve("doublin.onnx"),
            "'doublin.onnx'", "there is no file or folder", "did you mean 'doubling.onnx'"),
    Mistake("the name of a model on a hub", serve("sentence-transformers/all-MiniLM-L6-v2"),
            "no file or folder 'sentence-transformers", "models are not downloaded", "`hf download"),
    Mistake("an address of a model", serve("https://example.org/model.onnx"),
            "'https://example.org/model.onnx'", "is an address", "download the model, then name its file"),
    Mistake("--name for two models", serve("doubling.onnx", "model", "--name", "a"),
            "--name", "for one model", "named after their folders"),
    Mistake("an empty --name", serve("doubling.onnx", "--name", ""), "--name", "empty", "give one, or leave --name out"),
    Mistake("a misspelt setting", serve("doubling.onnx", "--set", "max_batch_sise=4"),
            "--set: there is no setting 'max_batch_sise'", "there is no", "did you mean 'max_batch_size'"),
    Mistake("a setting without a value", serve("doubling.onnx", "--set", "max_batch_size"),
            "--set: 'max_batch_size'", "has no value", "write NAME=VALUE"),
    Mistake("a setting that is a word", serve("doubling.onnx", "--set", "max_batch_size=many"),
            "max_batch_size is 'many'", "must be a number of rows", "0 .* to 65536"),
    Mistake("a setting of Python models", serve("doubling.onnx", "--set", "workers=2"),
            "setting 'workers'", "applies only to Python models", "doubling.onnx is not one"),
    Mistake("an origin without a scheme", serve("doubling.onnx", "--cors-allow-origin", "example.org"),
            "--cors-allow-origin: 'example.org'", "not an origin", 'write "https://host"'),
    Mistake("an allowed host that is an address", serve("doubling.onnx", "--allowed-host", "http://a"),
            "--allowed-host: 'http://a'", "not a host name", "without scheme and port"),
    Mistake("two models of a name",
            lambda w: (w.put("other/doubling.onnx", doubling()), w.serve("doubling.onnx", "other/doubling.onnx"))[1],
            "both be served as 'doubling'", "would both", "rename one, or put them in folders"),
    Mistake("a time with a unit", lambda w: w.run("serve", "doubling.onnx", "--idle-timeout-ms", "30s"),
            "--idle-timeout-ms: '30s'", "not a number", "from 1 to"),
    Mistake("a port that needs a right",
            lambda w: w.run("serve", "doubling.onnx", "--http-port", "80", "--metrics-port", "-1", preexec_fn=nobody(w)),
            "--http-port: cannot listen on 127.0.0.1:80", "Permission denied", "name a higher port"),
]
