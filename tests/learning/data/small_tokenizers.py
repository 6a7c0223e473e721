"""Small tokenizers of five kinds, as transformers saves them."""

import string

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

LETTERS = string.ascii_lowercase
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def numbered(words):
    return {word: number for number, word in enumerate(words)}


def wordpiece(lower):
    words = [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), *([] if lower else ["A", "B"])]
    made = Tokenizer(models.WordPiece(numbered(words), unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made, {"pad_token": "[PAD]"}


def unigram():
    pieces = [("<pad>", 0.0), ("<unk>", -1.0), *((c, -2.0) for c in LETTERS)]
    return Tokenizer(models.Unigram(pieces, unk_id=1)), {"pad_token": "<pad>"}


def roberta():
    """Of bytes in pairs, with padding 1, as RoBERTa has it."""
    words = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS, "ab"]
    made = Tokenizer(models.BPE(numbered(words), [("a", "b")], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made, {"pad_token": "<pad>"}


def characters():
    made = Tokenizer(models.WordLevel(numbered([*SPECIAL, *LETTERS]), unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return made, {"pad_token": "[PAD]"}


KINDS = {
    "uncased": lambda: wordpiece(lower=True),
    "cased": lambda: wordpiece(lower=False),
    "unigram": unigram,
    "roberta": roberta,
    "characters": characters,
}
