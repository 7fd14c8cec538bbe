#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/tokenizer/unicode_tables.c: the character sets that the tokenizers package uses.

The package mixes Unicode versions: its normaliser knows 9.0, its regular expressions (Oniguruma)
16.0, its lower-casing and digits those of the Rust it was built with. To encode as it does, we ask
it about every code point and keep the answers. What PCRE2 and utf8proc already answer alike is not
stored: only the differences are.

Versions: tokenizers 0.23.3, unicodedata2 of any version (which code points can matter to
normalisation), libpcre2-8 10.42 (Unicode 14). Usage: unicode_tables.py > unicode_tables.c
"""
import ctypes
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

try:
    import unicodedata2 as newest
except ImportError:
    newest = unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
GENERAL = ("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So "
           "Z Zs Zl Zp C Cc Cf Cn Co Cs").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari "
           "Bengali Tamil Telugu Georgian Armenian Khmer Lao Myanmar Tibetan Bopomofo").split()


def ranges(cps):
    out = []
    for c in sorted(cps):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def isolated(pre, filler="a", chars=ALL):
    """The code points that a splitter with behaviour Isolated sets apart; not the filler."""
    found = set()
    for lo in range(0, len(chars), 4096):
        text = "".join(filler + chr(c) for c in chars[lo:lo + 4096]) + filler
        for piece, (start, end) in pre.pre_tokenize_str(text):
            if end - start == 1 and start % 2 == 1:
                found.add(ord(text[start]))
    return found


def onig(cls):
    pre = pre_tokenizers.Split(Regex(cls), "isolated")
    filler = next(f for f in "a1" if len(pre.pre_tokenize_str(f + f)) == 1)
    return isolated(pre, filler) | ({ord("1")} if filler == "a" and len(
        pre.pre_tokenize_str("11")) == 2 else set())


class Pcre:
    def __init__(self):
        self.lib = ctypes.CDLL("libpcre2-8.so.0")
        self.lib.pcre2_compile_8.restype = ctypes.c_void_p
        self.lib.pcre2_compile_8.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32,
                                             ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.pcre2_match_data_create_8.restype = ctypes.c_void_p
        self.lib.pcre2_match_data_create_8.argtypes = [ctypes.c_uint32, ctypes.c_void_p]
        self.lib.pcre2_match_8.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                                           ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p,
                                           ctypes.c_void_p]
        self.md = self.lib.pcre2_match_data_create_8(8, None)

    def members(self, cls):
        code, off = ctypes.c_int(), ctypes.c_size_t()
        pat = ("^(?:" + cls + ")").encode()
        utf, ucp = 0x00080000, 0x00020000
        re = self.lib.pcre2_compile_8(pat, len(pat), utf | ucp, ctypes.byref(code),
                                      ctypes.byref(off), None)
        assert re, (cls, code.value)
        out = set()
        for c in ALL:
            t = chr(c).encode()
            if self.lib.pcre2_match_8(re, t, len(t), 0, 0x40000000, self.md, None) > 0:
                out.add(c)
        return out


def normalisation_unknown():
    """Code points that newer Unicode normalises and the package leaves alone."""
    nfkd = normalizers.NFKD()
    nfd = normalizers.NFD()
    unknown = set()
    parts = {}
    for c in ALL:
        ch = chr(c)
        d = newest.decomposition(ch)
        if d and nfkd.normalize_str(ch) == ch and newest.normalize("NFKD", ch) != ch:
            unknown.add(c)
            if not d.startswith("<"):
                unknown |= {int(x, 16) for x in d.split() if not known_part(int(x, 16), parts)}
        ccc = newest.combining(ch)
        if ccc:
            other = "\u0334" if ccc > 1 else "\u0301"
            text = "a" + (ch + other if ccc > 1 else other + ch)
            if nfd.normalize_str(text) == text and newest.normalize("NFD", text) != text:
                unknown.add(c)
    return unknown


def known_part(c, memo):
    """True if the package composes or reorders c: then it may not be made inert."""
    if not memo:
        nfc = normalizers.NFC()
        memo["set"] = set()
        for x in ALL:
            d = newest.decomposition(chr(x))
            if d and not d.startswith("<"):
                p = [int(v, 16) for v in d.split()]
                if nfc.normalize_str("".join(map(chr, p))) == chr(x):
                    memo["set"] |= set(p)
    return c in memo["set"] or c < 0x300


def table(name, rs, comment):
    print(f"\n/* {comment} */")
    print(f"const csn_cp_range {name}[] = {{")
    line = "   "
    for lo, hi in rs:
        item = f" {{{lo:#x}, {hi:#x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")
    print(f"const size_t {name}_n = sizeof({name}) / sizeof({name}[0]);")


def words():
    pre = pre_tokenizers.Whitespace()
    out = set()
    for lo in range(0, len(ALL), 4096):
        part = ALL[lo:lo + 4096]
        text = "".join("a" + chr(c) for c in part) + "a"
        covered = [None] * len(text)
        for i, (_, (start, end)) in enumerate(pre.pre_tokenize_str(text)):
            for k in range(start, end):
                covered[k] = i
        for k, c in enumerate(part):
            if covered[2 * k + 1] is not None and covered[2 * k + 1] == covered[2 * k]:
                out.add(c)
    return out


def combining():
    norm = normalizers.StripAccents()
    out = set()
    for lo in range(0, len(ALL), 4096):
        part = ALL[lo:lo + 4096]
        kept = set(norm.normalize_str("".join(map(chr, part))))
        out |= {c for c in part if chr(c) not in kept}
    return out


def lower_runs():
    """Runs (lo, hi, step, delta): cp -> cp + delta for lo, lo + step, ... hi."""
    norm = normalizers.Lowercase()
    pairs, odd = [], []
    for c in ALL:
        low = norm.normalize_str(chr(c))
        if low != chr(c):
            if len(low) == 1:
                pairs.append((c, ord(low) - c))
            else:
                odd.append((c, low))
    assert odd == [(0x130, "i\u0307")], odd
    runs = []
    for c, d in pairs:
        if runs and runs[-1][3] == d:
            gap = c - runs[-1][1]
            if runs[-1][0] == runs[-1][1] and gap in (1, 2):
                runs[-1][2] = gap
            if gap == runs[-1][2]:
                runs[-1][1] = c
                continue
        runs.append([c, c, 1, d])
    return runs


def main():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Made by tests/oracle/unicode_tables.py from the answers of tokenizers 0.23.3; do not")
    print(" * edit. */")
    print("/* clang-format off */")
    print('#include "text/tokenizer/unicode_tables.h"')
    table("csn_cp_numeric", ranges(isolated(pre_tokenizers.Digits(individual_digits=True))),
          "Digits: Rust's char::is_numeric (Nd, Nl, No)")
    table("csn_cp_punctuation", ranges(isolated(pre_tokenizers.Punctuation("isolated"))),
          "Punctuation and BertPreTokenizer")
    table("csn_cp_word", ranges(words()), "\\w of the package's own regular expressions")
    table("csn_cp_mark", ranges(combining()), "StripAccents: combining marks")
    table("csn_cp_not_normalised", ranges(normalisation_unknown()),
          "newer than the package's normaliser (Unicode 9): left alone by all four forms")
    runs = lower_runs()
    print("\n/* Lowercase: cp -> cp + delta for lo, lo + step, ... hi; U+0130 becomes i U+0307 */")
    print("const csn_cp_run csn_cp_lower[] = {")
    for lo, hi, step, d in runs:
        print(f"    {{{lo:#x}, {hi:#x}, {step}, {d}}},")
    print("};")
    print("const size_t csn_cp_lower_n = sizeof(csn_cp_lower) / sizeof(csn_cp_lower[0]);")
    pcre = Pcre()
    rows, lost = [], []
    for name, theirs in [(g, g) for g in GENERAL] + [(s, "sc:" + s) for s in SCRIPTS]:
        a, b = onig(f"\\p{{{name}}}"), pcre.members(f"\\p{{{theirs}}}")
        if name not in ("C", "Cn", "Cs"): # refused by the translator
            rows += [(name, lo, hi) for lo, hi in ranges(a - b)]
        lost += [(name, lo, hi) for lo, hi in ranges(b - a) if name not in ("C", "Cn")]
        print(name, len(a), len(b), len(a - b), len(b - a), file=sys.stderr)
    print("lost:", lost, file=sys.stderr)
    pre = pre_tokenizers.Split(Regex(r"\w"), "isolated")
    word, w = isolated(pre, "-"), isolated(
        pre_tokenizers.Split(Regex(r"[\p{L}\p{M}\p{N}\p{Pc}]"), "isolated"), "-")
    print("onig \\w vs LMNPc: +", ranges(word - w), "-", ranges(w - word), file=sys.stderr)
    w = isolated(pre_tokenizers.Split(Regex(r"[\p{L}\p{M}\p{Nd}\p{Pc}]"), "isolated"), "-")
    print("onig \\w vs LMNdPc: +", ranges(word - w), "-", ranges(w - word), file=sys.stderr)
    print("onig \\s", ranges(onig(r"\s")), "\\d - Nd", ranges(onig(r"\d") ^ onig(r"\p{Nd}")),
          file=sys.stderr)
    print("\n/* Members of \\p{name} in Oniguruma (Unicode 16) that PCRE2 10.42 (Unicode 14) lacks */")
    print("const csn_property_delta csn_property_deltas[] = {")
    for name, lo, hi in rows:
        print(f'    {{"{name}", {{{lo:#x}, {hi:#x}}}}},')
    print("};")
    print("const size_t csn_property_deltas_n =")
    print("    sizeof(csn_property_deltas) / sizeof(csn_property_deltas[0]);")
    print("/* clang-format on */")


main()
