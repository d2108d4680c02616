"""A model's template of chats, which makes one text of messages: the Jinja that Hugging Face's files have, rendered as transformers
renders it."""

import datetime
import json
import os
import signal

from chairlift import InvalidArgument

MAX_FILE_BYTES = 256 << 20
TEMPLATE_FILE, CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
RENDER_SECONDS = 5  # other texts of the model wait meanwhile
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_text(folder, name):
    """None where there is no such file."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return None
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise ValueError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_json(folder, name):
    """A dictionary; empty where there is no such file."""
    text = read_text(folder, name)
    if text is None:
        return {}
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{os.path.join(folder, name)} is not a JSON object")
    return found


class Template:
    """Of the files beside a tokenizer.json. Without one, and without the package jinja2, messages are refused, by name."""

    def __init__(self, folder):
        self.why, self.template = None, None
        config = read_json(folder, CONFIG_FILE)
        source = read_text(folder, TEMPLATE_FILE)
        if source is None:
            source = config.get("chat_template")
        if isinstance(source, list):  # several, by name
            source = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}.get("default")
        if not isinstance(source, str):
            self.why = (f"the model takes no chats: there is no {TEMPLATE_FILE} beside its tokenizer.json, and no "
                        f"\"chat_template\" in a {CONFIG_FILE}. /v1/completions continues texts")
            return
        self.tokens = {}
        for name in SPECIAL_TOKENS:
            token = config.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                self.tokens[name] = token
        try:
            import jinja2
            import jinja2.ext
            import jinja2.sandbox
        except ImportError as error:
            import sys
            self.why = (f"the model's template of chats needs the package jinja2, which {sys.executable} has not ({error}): "
                        "`pip install jinja2` there, or have CHAIRLIFT_PYTHON name an interpreter that has it")
            return
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                                   extensions=[jinja2.ext.loopcontrols])
        # jinja2's own escapes what HTML would.
        environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: \
            json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        environment.globals["raise_exception"] = refuse
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        try:
            self.template = environment.from_string(source)
        except Exception as error:  # also of the Python that is made of it
            self.why = f"the model's template of chats is none: {error}"

    def render(self, messages):
        if self.why is not None:
            raise InvalidArgument(self.why)
        messages = checked(messages)
        try:
            return in_time(lambda: self.template.render(messages=messages, add_generation_prompt=True, tools=None,
                                                        documents=None, **self.tokens))
        except InvalidArgument:
            raise
        except TooSlow:
            raise InvalidArgument("the model's template of chats takes these messages, but is not done with them within "
                                  f"{RENDER_SECONDS} s: send fewer, or shorter ones, or mend the template") from None
        except Exception as error:
            raise InvalidArgument("the model's template of chats does not take these messages: "
                                  f"{str(error) or type(error).__name__}") from None


class TooSlow(BaseException):
    """Not an Exception, so that nothing that runs meanwhile handles it."""


def in_time(call):
    """What it returns within RENDER_SECONDS, of the process's main thread."""
    def expire(*_):
        raise TooSlow

    signal.signal(signal.SIGALRM, expire)
    try:
        # Again and again: what is raised in a finalizer is lost.
        signal.setitimer(signal.ITIMER_REAL, RENDER_SECONDS, 0.5)
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def refuse(message):
    raise InvalidArgument(f"the model's template of chats refuses these messages: {message}")


def checked(text):
    """The messages of a request, whose contents are texts."""
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
        raise InvalidArgument(f"the \"content\" of message {i} must be a text, or a list of parts that are texts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise InvalidArgument(f"message {i} has a part {str(kind)!r:.80}; a part must be {{\"type\": \"text\", \"text\": …}}")
        texts.append(part["text"])
    return "\n".join(texts)
