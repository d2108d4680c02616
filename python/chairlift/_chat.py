"""The chat template of a model: Jinja as in Hugging Face's files, rendered as transformers does. A template may use any
amount of time and memory, so a child process with limits compiles and renders it."""

import ctypes
import datetime
import json
import os
import signal
import socket
import struct
import sys
import time

from _limits import limit_memory
from chairlift import InvalidArgument

MAX_FILE_BYTES = 256 << 20
MAX_CONFIG_BYTES = 16 << 20
MAX_TEMPLATE_BYTES = 1 << 20
MAX_TEXT_BYTES = 128 << 10
TEMPLATE_FILE, CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
RENDER_SECONDS = 5  # the model's other text inputs wait meanwhile
RENDER_BYTES = 512 << 20
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
PR_SET_PDEATHSIG = 1


def read_text(folder, name):
    """Returns None if the file does not exist."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return None
    if os.path.getsize(path) > MAX_CONFIG_BYTES:
        raise ValueError(f"{path} has more than {MAX_CONFIG_BYTES} bytes")
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_json(folder, name):
    """Returns a dict, which is empty if the file does not exist."""
    text = read_text(folder, name)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"{os.path.join(folder, name)} is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"{os.path.join(folder, name)} is not a JSON object")
    return found


def of_token(token):
    """Returns the text of a token, or None if the value is not a token."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


class Template:
    """The template of the files beside a tokenizer.json. Without one, or without the package jinja2, messages are refused
    with the reason."""

    def __init__(self, folder):
        self.why, self.child = None, None
        config = read_json(folder, CONFIG_FILE)
        source = read_text(folder, TEMPLATE_FILE)
        if source is None:
            source = config.get("chat_template")
        if isinstance(source, list):  # several templates with names
            source = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        if isinstance(source, dict):
            source = source.get("default")
        if not isinstance(source, str):
            self.why = (f"the model has no chat template: there is no {TEMPLATE_FILE} beside its tokenizer.json, and no "
                        f"\"chat_template\" in {CONFIG_FILE}; add one, or send a prompt to /v1/completions")
            return
        self.developers = "developer" in source
        if len(source) > MAX_TEMPLATE_BYTES:
            self.why = f"invalid chat template: it has {len(source)} characters; it may have {MAX_TEMPLATE_BYTES}"
            return
        self.source = source
        self.tokens = {name: of_token(config.get(name)) for name in SPECIAL_TOKENS if of_token(config.get(name)) is not None}
        more = config.get("additional_special_tokens")
        if isinstance(more, list):
            self.tokens["additional_special_tokens"] = [of_token(token) for token in more if of_token(token) is not None]
        try:
            import jinja2.ext
            import jinja2.sandbox  # noqa: F401
        except ImportError as error:
            self.why = (f"the model's chat template needs the package jinja2, which {sys.executable} has not ({error}): "
                        "`pip install jinja2` there, or have CHAIRLIFT_PYTHON name an interpreter that has it")
            return
        self.why = self.start()

    def start(self):
        """Starts the child process. Returns None, or why there is no template."""
        self.child = Child(lambda: compiled(self.source), self.text_of)
        try:
            error = self.child.receive()
        except TimeoutError:
            error = f"it is not compiled within {RENDER_SECONDS} s"
        except EOFError:
            return f"invalid chat template: its process {self.end(1)} while it compiled it"
        if not error:
            return None
        self.end()
        return f"invalid chat template: {error}"

    def end(self, patience=0.0):
        child, self.child = self.child, None
        return child.end(patience)

    def text_of(self, template, messages):
        """Renders the messages, in the child process. Returns (text, error); one of them is empty."""
        try:
            text = template.render(messages=json.loads(messages), add_generation_prompt=True, tools=None, documents=None,
                                   **self.tokens)
            size = len(text.encode(errors="surrogatepass"))
        except Refused as error:
            return "", f"the model's chat template refuses these messages: {error}"
        except Exception as error:
            return "", f"the model's chat template does not take these messages: {str(error) or type(error).__name__}"
        if size > MAX_TEXT_BYTES:
            return "", f"the text has {size} bytes; it may have {MAX_TEXT_BYTES}"
        return text, ""

    def render(self, messages):
        if self.why is not None:
            raise InvalidArgument(self.why)
        messages = checked(messages)
        for message in messages:  # OpenAI's newer name of the role, which few templates know
            if message["role"] == "developer" and not self.developers:
                message["role"] = "system"
        messages = json.dumps(messages)
        if self.child is None and (error := self.start()) is not None:
            raise InvalidArgument(error)
        try:
            self.child.send(messages)
            text, error = self.child.receive()
        except TimeoutError:
            self.end()
            error = ("the model's chat template takes these messages, but is not done with them within "
                     f"{RENDER_SECONDS} s: send fewer or shorter ones, or fix the template")
        except EOFError:
            error = f"the model's chat template does not take these messages: its process {self.end(1)}"
        if error:
            raise InvalidArgument(error)
        return text


class Refused(Exception):
    """The template itself refused the messages."""


def refuse(message):
    raise Refused(message)


def compiled(source):
    """Compiles the template as transformers does."""
    import jinja2.ext
    import jinja2.sandbox

    class GenerationBlocks(jinja2.ext.Extension):
        """{% generation %} … {% endgeneration %} mark the model's text for training. They add nothing to the text."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_inner"), [], [], body).set_lineno(line)

        @staticmethod
        def _inner(caller):
            return caller()

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                               extensions=[GenerationBlocks, jinja2.ext.loopcontrols])
    # jinja2's own filter escapes characters for HTML.
    environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: \
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(source)


class Child:
    """A process that runs `prepare()` once, then answers each message in JSON with answer(prepared, message)."""

    def __init__(self, prepare, answer):
        self.socket, theirs = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.socket.close()
                self.socket = theirs
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() == parent:
                    self.serve(prepare, answer)
            finally:
                os._exit(1)
        theirs.close()

    def serve(self, prepare, answer):
        limit_memory(RENDER_BYTES)
        try:
            prepared, error = prepare(), ""
        except Exception as raised:  # includes errors of the Python code that jinja2 generates
            prepared, error = None, str(raised) or type(raised).__name__
        self.send(error)
        while prepared is not None:
            self.send(answer(prepared, self.receive(None)))

    def send(self, message):
        data = json.dumps(message).encode()
        self.socket.settimeout(RENDER_SECONDS)
        try:
            self.socket.sendall(struct.pack("=Q", len(data)) + data)
        except TimeoutError:
            raise
        except OSError:  # its last reply has the error
            pass

    def receive(self, seconds=RENDER_SECONDS):
        """Raises TimeoutError, or EOFError if the process has ended."""
        end = None if seconds is None else time.monotonic() + seconds
        size, = struct.unpack("=Q", self.read(8, end))
        return json.loads(self.read(size, end))

    def read(self, size, end):
        data = bytearray()
        while len(data) < size:
            self.socket.settimeout(None if end is None else max(end - time.monotonic(), 1e-6))
            try:
                got = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError:
                got = b""
            if not got:
                raise EOFError("closed its end")
            data += got
        return data

    def end(self, patience=0.0):
        """Kills the process if it does not end within `patience` seconds. Returns how it ended."""
        self.socket.close()
        end = time.monotonic() + patience
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        while not ended and time.monotonic() < end:
            time.sleep(0.005)
            ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


def checked(text):
    """Returns the messages of a request. Their contents must be text."""
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"\"messages\" are no JSON: {error}") from None
    if not isinstance(messages, list) or not messages:
        raise InvalidArgument("\"messages\" must be a list of one message or more")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidArgument(f"message {i} must be an object with a \"role\", a text")
        message["content"] = text_of(i, message.get("content"))
        for key in ("tool_calls", "function_call", "audio"):
            if message.get(key):
                raise InvalidArgument(f"message {i} has \"{key}\", which is not supported: leave it out")
    return messages


def text_of(i, content):
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidArgument(f"the \"content\" of message {i} must be a string, or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise InvalidArgument(f"message {i} has a part {str(kind)!r:.80}; a part must be {{\"type\": \"text\", \"text\": …}}")
        texts.append(part["text"])
    return "\n".join(texts)
