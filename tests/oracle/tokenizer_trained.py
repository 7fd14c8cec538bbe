# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers that the tokenizers package (0.23.3) trains on tokenizer_texts.SAMPLES: one for
each part of our engine that real files do not reach."""
import json
import os
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

import tokenizer_texts

BYTES = [f"<0x{b:02X}>" for b in range(256)]
CORPUS = [t for t in tokenizer_texts.SAMPLES for _ in range(3)]
LATIN = CORPUS[:18]


def template(tok, bos, eos=None):
    special = [(t, tok.token_to_id(t)) for t in (bos, eos) if t]
    return processors.TemplateProcessing(single=f"{bos} $A" + (f" {eos}" if eos else ""),
                                         pair=f"{bos} $A {bos} $B", special_tokens=special)


def unigram(metaspace, normalizer=None, vocab=500, byte_fallback=False):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizer
    tok.pre_tokenizer = metaspace
    tok.decoder = decoders.Metaspace(replacement=metaspace.replacement,
                                     prepend_scheme=metaspace.prepend_scheme,
                                     split=metaspace.split)
    tok.train_from_iterator(LATIN, trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
        show_progress=False, initial_alphabet=[]))
    if byte_fallback:
        data = json.loads(tok.to_str())
        low = min(s for _, s in data["model"]["vocab"]) - 1
        data["model"]["vocab"] += [[b, low] for b in BYTES]
        data["model"]["byte_fallback"] = True
        tok = Tokenizer.from_str(json.dumps(data))
        tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                         decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = template(tok, "<s>", "</s>")
    return tok


def bpe(pre, normalizer=None, decoder=None, vocab=500, specials=("<unk>", "<s>"), byte_level=False,
        fallback=False, **kw):
    tok = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>", byte_fallback=fallback,
                               **kw))
    if normalizer is not None:
        tok.normalizer = normalizer
    if pre is not None:
        tok.pre_tokenizer = pre
    if decoder is not None:
        tok.decoder = decoder
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(specials) + (BYTES if fallback else []),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [],
        limit_alphabet=1000 if byte_level else 150, show_progress=False,
        continuing_subword_prefix=kw.get("continuing_subword_prefix") or "",
        end_of_word_suffix=kw.get("end_of_word_suffix") or ""))
    if fallback:  # byte tokens are part of the vocabulary, not added tokens
        data = json.loads(tok.to_str())
        data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] not in BYTES]
        tok = Tokenizer.from_str(json.dumps(data))
    return tok


def byte_level():
    tok = bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False)]),
              decoder=decoders.ByteLevel(), byte_level=True,
              specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tok.add_tokens([AddedToken("<think>", normalized=False), AddedToken("wOrd", single_word=True),
                    AddedToken("<l>", lstrip=True, normalized=False),
                    AddedToken("<r>", rstrip=True, normalized=False),
                    AddedToken("\u00e4b", normalized=True), AddedToken("<lr>", lstrip=True, rstrip=True)])
    return tok


def byte_level_prefix():
    tok = bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), decoder=decoders.ByteLevel(),
              byte_level=True, specials=("<s>", "</s>"), normalizer=normalizers.NFC())
    tok.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tok


def llama2():
    """SentencePiece BPE the old way: Prepend and Replace, one piece a text."""
    tok = bpe(None, normalizer=normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                     normalizers.Replace(" ", "\u2581")]),
              decoder=decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                         decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
              fallback=True, fuse_unk=True, specials=("<unk>", "<s>", "</s>"), vocab=700)
    tok.post_processor = template(tok, "<s>")
    return tok


def metaspace(scheme, split, **kw):
    tok = bpe(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split),
              decoder=decoders.Metaspace(prepend_scheme=scheme, split=split), **kw)
    tok.add_special_tokens([AddedToken("<sep>", normalized=False, special=True)])
    return tok


def nfkc_lowercase():
    tok = unigram(pre_tokenizers.Metaspace(prepend_scheme="always"), normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]))
    tok.add_tokens([AddedToken("MiXed", normalized=True), AddedToken("RAW", normalized=False)])
    return tok


def digits_punctuation():
    return bpe(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                        pre_tokenizers.Punctuation("contiguous"),
                                        pre_tokenizers.Digits(individual_digits=False)]),
               normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(),
                                                normalizers.Strip()]),
               decoder=decoders.BPEDecoder(suffix="</w>"), end_of_word_suffix="</w>")


def subword_prefix():
    return bpe(pre_tokenizers.BertPreTokenizer(), continuing_subword_prefix="##", fuse_unk=False)


def edges():
    """Most letters are no tokens and there is no unknown one, so that merges reach across what
    vanished; \\w inside brackets; added tokens of white space that strip what another has taken."""
    letters = list("aent\u2581z")
    pairs = [("n", "\u2581"), ("e", "\u2581"), ("\u2581", "a"), ("t", "e"), ("n\u2581", "t")]
    vocab = {t: i for i, t in enumerate(letters + [a + b for a, b in pairs])}
    tok = Tokenizer(models.BPE(vocab, pairs))
    tok.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"[^\w\s]"), "z"),
                                           normalizers.Replace(" ", "\u2581")])
    tok.add_tokens([AddedToken("\n", lstrip=True, rstrip=True, normalized=False),
                    AddedToken("\t", rstrip=True, normalized=False),
                    AddedToken("  ", lstrip=True, rstrip=True, normalized=False)])
    return tok


def words():
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.normalizer = normalizers.Nmt()
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(CORPUS, trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["<unk>"], show_progress=False))
    return tok


def splits():
    s = pre_tokenizers.Split
    pre = pre_tokenizers.Sequence([
        s(Regex(r"\s+"), "merged_with_previous"), s("e", "merged_with_next"),
        s(Regex(r"[A-Z&&[^X]]"), "contiguous"), s(Regex(r"[^\W\d_]+\h*|\p{^L}"), "isolated", invert=True),
        s("-", "removed")])
    return bpe(pre, normalizer=normalizers.NFKD())


RULES = ["A\ta", "B\tb", "\ufb01\tfi", "\u337f\t\u682a\u5f0f\u4f1a\u793e", "e\u0301\t\u00e9", "\u00bd\t1/2",
         "\u200b\t", "\u3000\t ", "\u304b\u3099\t\u304c", "\u1100\u1161\t\uac00", "\U0001f468\u200d\tman",
         "ab\tX"]


def charsmap(rules):
    """The compiled rules of SentencePiece (package sentencepiece 0.2.3); None: its nmt_nfkc."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    with tempfile.TemporaryDirectory() as tmp:
        args = {"normalization_rule_name": "nmt_nfkc"}
        if rules is not None:
            tsv = os.path.join(tmp, "rules.tsv")
            with open(tsv, "w") as f:
                for rule in rules:
                    f.write("\t".join(" ".join(f"{ord(c):X}" for c in side)
                                      for side in rule.split("\t")) + "\n")
            args = {"normalization_rule_tsv": tsv}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LATIN), model_prefix=os.path.join(tmp, "m"), vocab_size=300,
            hard_vocab_limit=False, minloglevel=2, **args)
        model = pb.ModelProto()
        model.ParseFromString(open(os.path.join(tmp, "m.model"), "rb").read())
    return model.normalizer_spec.precompiled_charsmap


def precompiled(rules=RULES):
    return unigram(pre_tokenizers.Metaspace(prepend_scheme="always"), normalizers.Sequence(
        [normalizers.Precompiled(charsmap(rules)), normalizers.Replace(Regex(" {2,}"), " "),
         normalizers.Strip(left=False, right=True)]))


MAKERS = {
    "unigram-first": lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "unigram-fallback": lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
                                        byte_fallback=True),
    "bpe-fallback": llama2,
    "metaspace-always": lambda: metaspace("always", True),
    "metaspace-first": lambda: metaspace("first", False, fallback=True, vocab=600, fuse_unk=True),
    "metaspace-never": lambda: metaspace("never", True, normalizer=normalizers.Strip()),
    "nfkc-lowercase": nfkc_lowercase,
    "digits-punctuation": digits_punctuation,
    "byte-level": byte_level,
    "byte-level-prefix": byte_level_prefix,
    "subword-prefix": subword_prefix,
    "word-level": words,
    "splits": splits,
    "edges": edges,
    "precompiled": precompiled,
}


def write_all(folder, names=()):
    paths = []
    for name in names or MAKERS:
        make = MAKERS[name]
        path = os.path.join(folder, name + ".json")
        make().save(path, pretty=False)
        paths.append(path)
    return paths
