"""Finds where a long text can be cut so that one part alone determines the tokens of its beginning or its end.

A tokenizer splits the text into pieces, and makes tokens within them. A cut is safe between a word and the white space
after it, if the tokenizer always splits there. This is proved from the tokenizer's components; if it cannot be proved, the
text is not cut.
"""

import json
import re
import unicodedata

# Parts of a normalizer that read only a character and the characters that combine with it.
LOCAL_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend",
                     "Precompiled"}
SPLITS_AT_WHITE_SPACE = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
LOCAL_PRE_TOKENIZERS = {"Punctuation", "Digits"}
# The patterns of GPT-4 and Llama 3, and of Qwen 2: no alternative continues from a letter or digit to white space.
SPLIT_PATTERNS = {r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits +
                  r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+" for digits in ("", "{1,3}")}
WORD = r"[^\W_]"  # letters and digits: no normal form combines them with the character before
MODELS = {"WordPiece", "WordLevel", "Unigram", "BPE"}
MAX_PIECE = 1024
CHINESE = "[\u4e00-\u9fff]"  # a BertNormalizer makes each a word
MARK = "\u2581"  # the mark of a space


def parts_of(part):
    """The components of a normalizer or pre-tokenizer, as in its file."""
    if part is None:
        return []
    said = json.loads(part.__getstate__())
    flat, left = [], [said]
    while left:
        one = left.pop(0)
        left[:0] = one.get("normalizers", []) + one.get("pretokenizers", [])
        if one["type"] != "Sequence":
            flat.append(one)
    return flat


def may_span_words(token):
    """Whether an added token can match across the white space between two words."""
    if re.search(r"\s", token.content):
        return True
    return token.normalized and re.search(r"\s|" + MARK, unicodedata.normalize("NFKC", token.content)) is not None


def splits_at_marks(tokenizer):
    """For a tokenizer that marks spaces: whether no piece continues from a word into a space."""
    if type(tokenizer.model).__name__ not in ("BPE", "Unigram"):
        return False
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    return MARK in pieces and not any(MARK in piece.lstrip(MARK) or len(piece) > MAX_PIECE for piece in pieces)


def cuts_of(tokenizer):
    """Returns a zero-width pattern that matches where a text can be cut, or None."""
    if type(tokenizer.model).__name__ not in MODELS or getattr(tokenizer.model, "dropout", None):
        return None
    white_space, marks, splits, chinese = r"[ \t\n]", False, False, False
    for one in parts_of(tokenizer.normalizer):
        if one["type"] == "Replace" and (one["pattern"], one["content"]) == ({"String": " "}, MARK):
            marks = True
        elif one["type"] == "Replace" and (one["pattern"], one["content"]) == ({"Regex": " {2,}"}, " "):
            white_space = " "
        elif one["type"] not in LOCAL_NORMALIZERS:
            return None
        chinese = chinese or one.get("handle_chinese_chars", False)
    splitters = parts_of(tokenizer.pre_tokenizer)
    for one in splitters:
        kind = one["type"]
        if kind == "Metaspace":
            white_space = " "
            splits, marks = splits or one.get("split", True), marks or not one.get("split", True)
        elif kind == "ByteLevel":
            splits = splits or one.get("use_regex", True)
        elif kind == "Split" and one["pattern"].get("Regex") in SPLIT_PATTERNS:
            if one["behavior"] != "Isolated" or one["invert"]:
                return None
            splits = True
        elif kind in SPLITS_AT_WHITE_SPACE:
            splits = True
        elif kind not in LOCAL_PRE_TOKENIZERS and not (marks and kind == "Split" and one["pattern"] == {"String": " "}):
            return None
        chinese = chinese and kind in SPLITS_AT_WHITE_SPACE
    if marks:
        if any(one["type"] not in ("Metaspace", "Split") for one in splitters) or not splits_at_marks(tokenizer):
            return None
        white_space, splits, chinese = " ", True, False
    added = list(tokenizer.get_added_tokens_decoder().values())
    if not splits or any(map(may_span_words, added)):
        return None
    pattern = f"(?<={WORD})(?={white_space}{WORD})"
    if chinese and not any(re.search(CHINESE, token.content) for token in added):
        pattern += f"|(?<={CHINESE})(?={CHINESE})"
    return re.compile(pattern)
