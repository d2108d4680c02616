"""Loads a tokenizer with the files beside its tokenizer.json: the changes of tokenizer_config.json and
special_tokens_map.json, applied as in transformers, and the prompts of sentence-transformers."""

import json
import os

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

from _chat import MAX_FILE_BYTES, SPECIAL_TOKENS, read_json
from chairlift import InvalidArgument

CONFIG_FILE = "tokenizer_config.json"


def load(path):
    """Returns the tokenizer and its tokenizer_config.json."""
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise ValueError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    tokenizer = Tokenizer.from_file(path)
    folder = os.path.dirname(path)
    config = read_json(folder, CONFIG_FILE)
    set_normalizer(tokenizer, config)
    set_prefix_space(tokenizer, config)
    add_special_tokens(tokenizer, [read_json(folder, "special_tokens_map.json"), config])
    set_ends(tokenizer, config)
    if config.get("split_special_tokens") is True:
        tokenizer.encode_special_tokens = True
    return tokenizer, config


def state_of(part):
    return json.loads(part.__getstate__()) if part is not None else {}


def set_normalizer(tokenizer, config):
    """Sets BERT's normalizer, whose options have other names in tokenizer_config.json."""
    state = state_of(tokenizer.normalizer)
    if state.pop("type", None) != "BertNormalizer":
        return
    said = dict(state)
    for field, name in (("lowercase", "do_lower_case"), ("strip_accents", "strip_accents"),
                        ("handle_chinese_chars", "tokenize_chinese_chars")):
        if isinstance(config.get(name), bool):
            said[field] = config[name]
    if said != state:
        tokenizer.normalizer = normalizers.BertNormalizer(**said)


def set_prefix_space(tokenizer, config):
    state, wanted = state_of(tokenizer.pre_tokenizer), config.get("add_prefix_space")
    if state.get("type") == "ByteLevel" and isinstance(wanted, bool) and state["add_prefix_space"] != wanted:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=wanted, use_regex=state.get("use_regex", True))


def text_of(token):
    return token.get("content") if isinstance(token, dict) else token


def add_special_tokens(tokenizer, files):
    """Marks tokens as special that tokenizer.json has as normal tokens."""
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    added = []
    for file in files:
        named = [file.get(name) for name in SPECIAL_TOKENS]
        more = file.get("additional_special_tokens")
        named += more if isinstance(more, list) else []
        of_ids = file.get("added_tokens_decoder")
        named += [token for token in (of_ids.values() if isinstance(of_ids, dict) else [])
                  if isinstance(token, dict) and token.get("special") is True]
        for token in named:
            text = text_of(token)
            if not isinstance(text, str) or text in known or tokenizer.token_to_id(text) is None:
                continue
            flags = {name: token[name] for name in ("lstrip", "rstrip", "single_word", "normalized")
                     if isinstance(token, dict) and isinstance(token.get(name), bool)}
            added.append(AddedToken(text, special=True, **{"normalized": False, **flags}))
            known.add(text)
    tokenizer.add_special_tokens(added)


def set_ends(tokenizer, config):
    """Adds tokens before and after a text, as add_bos_token and add_eos_token say."""
    said = {name: config[name] for name in ("add_bos_token", "add_eos_token") if isinstance(config.get(name), bool)}
    if not said:
        return
    text, whole = tokenizer.encode("a", add_special_tokens=False).ids, tokenizer.encode("a").ids
    at = next((i for i in range(len(whole) - len(text) + 1) if whole[i:i + len(text)] == text), None)
    if not text:  # the tokenizer has no token for "a"
        at = 1 if whole and whole[0] == tokenizer.token_to_id(str(text_of(config.get("bos_token")))) else 0
    if at is None:
        raise ValueError(f"{CONFIG_FILE} says {' and '.join(said)}, and what tokenizer.json adds to a text cannot be told")
    before, behind = whole[:at], whole[at + len(text):]
    changed = False
    for name, key, ends, place in (("add_bos_token", "bos_token", before, 0), ("add_eos_token", "eos_token", behind, -1)):
        wanted, token = said.get(name), text_of(config.get(key))
        number = tokenizer.token_to_id(token) if isinstance(token, str) else None
        if wanted and number is None:
            raise ValueError(f"{CONFIG_FILE} says {name}, and its {key} is {token!r}, which tokenizer.json does not have")
        if wanted is None or number is None or wanted == (bool(ends) and ends[place] == number):
            continue
        changed = True
        if not wanted:
            del ends[place]
        elif place == 0:
            ends.insert(0, number)
        else:
            ends.append(number)
    if not changed:
        return
    names = {number: tokenizer.id_to_token(number) for number in before + behind}

    def template(text, kind):
        return [f"{names[number]}:{kind}" for number in before] + [f"${text}:{kind}"] + \
            [f"{names[number]}:{kind}" for number in behind]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template("A", 0), pair=template("A", 0) + template("B", 1),
        special_tokens=[(token, number) for number, token in names.items()])


class Prompts:
    """The prompts before a text, and whether text is lowercased then. `said`: the argument of Texts."""

    def __init__(self, said):
        self.by_name, self.default, self.lower = said["prompts"], said["prompt"], said["lower"]
        self.pooled = said["include_prompt"]

    def applied(self, name, text):
        """`name`: name of the prompt. None: the default prompt."""
        prompt = self.default if name is None else self.named(name)
        text = prompt + text
        return text.lower() if self.lower else text

    def named(self, name):
        if not self.by_name:
            raise InvalidArgument("\"prompt_name\" is given, and the model has no prompts: they are in "
                                  "config_sentence_transformers.json beside tokenizer.json")
        if name not in self.by_name:
            raise InvalidArgument(f"\"prompt_name\" is \"{name[:100]}\"; the model has {', '.join(sorted(self.by_name))}")
        if self.by_name[name] and not self.pooled:
            raise InvalidArgument("\"prompt_name\" is not supported with this model: 1_Pooling/config.json says include_prompt "
                                  "false, and the tokens of a prompt would be pooled")
        return self.by_name[name]
