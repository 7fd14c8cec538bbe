# SPDX-License-Identifier: Apache-2.0
"""Varied texts for the tokenizer tests; seeded, so that every run sees the same ones."""
import random

SAMPLES = """The quick brown fox jumps over the lazy dog, don't you think? I'll say: it's 3.14159!
Der Übermut tut selten gut – „Größe“ zählt, außer in Straßenschildern.
L'été, c'était l'œuvre d'un garçon naïf à Noël. ¿Qué pasó, señor? ¡Olé!
Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка, йод.
Η γρήγορη καφέ αλεπού πηδάει πάνω από το σκυλί. Ὀδυσσεύς, ᾧ
我能吞下玻璃而不伤身体。「你好，世界」２０２４年１２月３１日
いろはにほへと ちりぬるを、カタカナとひらがな。ﾊﾝｶｸ ｶﾞ ガ ガ
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한국어
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ١٢٣٤٥ ـــ
דג סקרן שט בים מאוכזב ולפתע מצא חברה שָׁלוֹם
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का १२३
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓
Tiếng Việt rất đẹp: ăn, uống, ngủ, nghỉ. Ố ồ ổ ỗ ộ
தமிழ் மொழி வாழ்க ௧௨௩ ௰ বাংলা ভাষা ০১২ తెలుగు ಕನ್ನಡ മലയാളം ਪੰਜਾਬੀ ગુજરાતી සිංහල
ქართული ენა Հայերեն አማርኛ ខ្មែរ ລາວ မြန်မာ བོད་ཡིག ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ
İstanbul'da ILIK ışık; ŐSZ ŰR ǅ ǆ Ǆ ß ẞ ﬁ ﬂ ﬀ ŉ ſt K Å Ω
def f(x: int) -> str:\n    \"\"\"doc\"\"\"\n\treturn f\"{x!r:>10}\" if x != 0 else '\\\\n'  # comment
int main(void) { for (size_t i = 0; i < n; ++i) { a[i] ^= b[i] << 3 | 0x7fu; } return -1; }
<div class="a b" id='x'>&nbsp;&lt;tag/&gt;</div><!-- c --> https://example.com/a?b=c&d=%20#e
SELECT * FROM t WHERE a = 'it''s' AND b <> "x" -- ok\n; {"k": [1, 2.5e-10, null, true]}
$E = mc^2$, \\frac{1}{2}, ∑ᵢ xᵢ² ≤ ∞ ∀x∈ℝ: ⌊x⌋ ≠ ½ + ⅓ ① ⑳ Ⅳ ⅷ ㎏ ㍿ ﷺ
😀 😃👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 👍🏽 ❤️ ☺︎ 🫨 🪿 🩷 ✊🏿 🧑🏻‍❤️‍💋‍🧑🏿 1️⃣ #️⃣
1234567890 12 345 6,789.01 +49 (0)30 12345-678 0xDEADBEEF 1e-9 ٣٤ ৪৫ 五六 Ⅻ ²³ ¼
e\u0301 a\u0308\u0323 a\u0323\u0308 o\u031b\u0323 \u1100\u1161\u11a8 \u212b \u0344 \u0f73 \u2adc \ufb1d q\u0307\u0323
don't can't won't I'd we've they're y'all 'S 'T 'RE 'VE 'M 'LL 'D \u2019s \u2019t 'ſ
\ufeffBOM \u00a0nbsp\u2003em\u2009thin\u3000ideo\u200bzwsp\u200dzwj\u2060wj\u180emvs\u202frtl\u202e\u2028ls\u2029ps\x85nel
CamelCaseString snake_case kebab-case SCREAMING_CASE mixedCASEWords XMLHttpRequest iPhone15ProMax
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbb ............ -------- ======= ________ ####### !!!!????
\U0001f1e6 \U00010348 \U0001d54f\U0001d552 \U00020000\U0002a6df \U00031350 \U0002ebf0 \U0001e900\U0001e922 \U000e0001 \uffff\ufffd\ue000 \U0010ffff
""".split("\n")
SAMPLES = [s.encode().decode("unicode_escape").encode("latin-1").decode("utf-8")
           if s.isascii() and "\\" in s and "frac" not in s and "return f" not in s else s
           for s in SAMPLES if s]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\t\t ", "\u00a0", "\u3000",
          "\u2003", "\u200b", "\x0b", "\x0c", "\x85", "\u2028", "          ", "\n\n\n\n", "\u2581",
          "\u180e", "\x1c", "\u202f"]


def unescape(s):
    import re
    return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|n|t)",
                  lambda m: {"n": "\n", "t": "\t"}.get(m[1]) or chr(int(m[1][1:], 16)), s)


SAMPLES = [unescape(s) for s in SAMPLES]
ALL_CPS = "".join(SAMPLES)


def random_cp(r):
    while True:
        c = r.choice((r.randrange(0x80), r.randrange(0x800), r.randrange(0x10000),
                      r.randrange(0x110000)))
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def one(r, specials):
    kind = r.randrange(10)
    if kind == 0:
        return "".join(random_cp(r) for _ in range(r.randrange(1, 40)))
    if kind == 1:
        return "".join(r.choice(ALL_CPS) for _ in range(r.randrange(1, 80)))
    if kind == 2:
        return "".join(r.choice(SPACES) if r.random() < .5 else r.choice(ALL_CPS)
                       for _ in range(r.randrange(1, 50)))
    if kind == 3:
        return "".join(chr(r.randrange(0x20, 0x7f)) for _ in range(r.randrange(1, 80)))
    if kind == 4 and specials:
        parts = []
        for _ in range(r.randrange(1, 8)):
            parts.append(r.choice(specials))
            parts.append(r.choice(SPACES + ["x", " word", "!", "", ""]))
        return "".join(parts)
    if kind == 5:
        return "".join(chr(r.randrange(0, 0x20)) if r.random() < .4 else r.choice("ab 1\u00e9")
                       for _ in range(r.randrange(1, 40)))
    if kind == 6:
        return r.choice(SAMPLES) + r.choice(SPACES) + r.choice(SAMPLES)
    words = ALL_CPS.split(" ")
    text = "".join(r.choice(words) + r.choice(SPACES if r.random() < .2 else [" "])
                   for _ in range(r.randrange(1, 30)))
    if kind == 7:
        return r.choice(SPACES) + text
    if kind == 8:
        return text.upper() if r.random() < .5 else text.title()
    lo = r.randrange(len(text))
    return text[lo:lo + r.randrange(1, 200)]


def long_texts(r):
    words = ALL_CPS.split(" ")
    yield "a" * 200_000
    yield " " * 200_000
    yield " " * 199_999 + "x"
    yield "\n" * 100_000 + " " * 100_000
    yield "".join(r.choice(ALL_CPS) for _ in range(100_000))
    yield " ".join(r.choice(words) for _ in range(30_000))
    yield "ab" * 100_000
    yield "\u0301\u0323" * 50_000
    yield "\U0001f600" * 50_000
    yield "我" * 66_000
    yield "1234567890" * 20_000
    yield "!?" * 100_000
    yield "é" * 100_000


def texts(n, specials=(), seed=20261129, with_long=True):
    r = random.Random(seed)
    out = ["", " ", "\n", "\0", "a", "\u2581", "\ufffd"]
    out += SAMPLES + SPACES + ["x" + s + "y" for s in SPACES] + [s + "x" for s in SPACES]
    longs = list(long_texts(r)) if with_long else []
    while len(out) + len(longs) < n:
        out.append(one(r, list(specials)))
    return (out + longs)[:n] if n > len(longs) else out[:n]
