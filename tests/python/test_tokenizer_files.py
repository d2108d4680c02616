"""Changes of a tokenizer.json by tokenizer_config.json and special_tokens_map.json, as in transformers."""

import json
import pathlib
import sys

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python/chairlift"))
import _tokenizer_files  # noqa: E402  as worker processes import it

WORDS = ["[PAD]", "[UNK]", "<s>", "</s>", "a", "b", "A", "\u00e9", "e"]
PAD, UNK, BOS, EOS, SMALL_A, B, LARGE_A, ACUTE, E = range(len(WORDS))
NAMES = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}


@pytest.fixture
def load(tmp_path):
    def loaded(normalizer=None, post_processor=None, pre_tokenizer=None, **files):
        tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if post_processor is not None:
            tokenizer.post_processor = post_processor
        tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return _tokenizer_files.load(str(tmp_path / "tokenizer.json"))[0]
    return loaded


@pytest.mark.parametrize("of_file, said, ids", [
    ({"lowercase": False}, {"do_lower_case": True}, [SMALL_A, E]),  # accents follow the case, unless they are said
    ({"lowercase": False}, {"do_lower_case": True, "strip_accents": False}, [SMALL_A, ACUTE]),
    ({"lowercase": True}, {"do_lower_case": False, "strip_accents": None}, [LARGE_A, ACUTE]),
    ({"lowercase": True}, {}, [SMALL_A, E]),
])
def test_bert_s_normalizer(load, of_file, said, ids):
    assert load(normalizers.BertNormalizer(**of_file), tokenizer_config=said).encode("A \u00e9").ids == ids


def test_another_normalizer_stays(load):
    assert load(normalizers.Lowercase(), tokenizer_config={"do_lower_case": False}).encode("A").ids == [SMALL_A]


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("bos", [None, False, True])
@pytest.mark.parametrize("eos", [None, False, True])
def test_ends(load, in_file, bos, eos):
    ends = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", BOS)])
    config = {**NAMES, **{name: said for name, said in (("add_bos_token", bos), ("add_eos_token", eos)) if said is not None}}
    tokenizer = load(post_processor=ends if in_file else None, tokenizer_config=config)
    before = [BOS] if bos or (bos is None and in_file) else []
    behind = [EOS] if eos else []
    assert tokenizer.encode("a b").ids == [*before, SMALL_A, B, *behind]
    assert tokenizer.encode("a", "b").ids == [*before, SMALL_A, *behind, *before, B, *behind]


@pytest.mark.parametrize("config", [{"add_bos_token": True}, {"add_eos_token": True, "eos_token": "<end>"}])
def test_an_end_that_is_not_there_is_refused(load, config):
    with pytest.raises(ValueError, match=next(iter(config))):
        load(tokenizer_config=config)


def test_a_space_in_front(load):
    for of_file, said in ((False, True), (True, False)):
        tokenizer = load(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=of_file), tokenizer_config={"add_prefix_space": said})
        first = tokenizer.pre_tokenizer.pre_tokenize_str("a")[0][0]
        assert (first == "\u0120a") is said


def test_special_tokens_are_found_in_texts_and_have_none(load):
    assert load().encode("a</s>b").ids == [UNK]
    for files in ({"special_tokens_map": {"sep_token": "</s>", "mask_token": "<not there>"}},
                  {"special_tokens_map": {"additional_special_tokens": ["</s>"]}}, {"tokenizer_config": NAMES},
                  {"tokenizer_config": {"added_tokens_decoder": {"3": {"content": "</s>", "special": True}}}}):
        tokenizer = load(**files)
        assert tokenizer.encode("a</s>b").ids == [SMALL_A, EOS, B]
        assert tokenizer.decode([SMALL_A, EOS, B], skip_special_tokens=True) == "a b"
    tokenizer = load(tokenizer_config={**NAMES, "split_special_tokens": True})
    assert tokenizer.encode("a</s>b").ids == [UNK]
