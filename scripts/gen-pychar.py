#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/template/pychar_tables.inc: where Python's str methods differ from the simple
mappings and categories of utf8proc. Run with Python 3.11 (Unicode 14) from the repository's root."""
import unicodedata as u

out = ["/* SPDX-License-Identifier: Apache-2.0 */",
       "/* Made by scripts/gen-pychar.py from Python's str: do not edit. */", ""]


def ranges(name, test):
    found, start = [], None
    for cp in range(0x110001):
        hit = cp < 0x110000 and not 0xD800 <= cp < 0xE000 and test(chr(cp))
        if hit and start is None:
            start = cp
        elif not hit and start is not None:
            found.append((start, cp - 1))
            start = None
    out.append(f"static const trange_cp {name}[] = {{")
    line = "   "
    for a, b in found:
        item = f" {{0x{a:x}, 0x{b:x}}},"
        if len(line) + len(item) > 100:
            out.append(line)
            line = "   "
        line += item
    out.append(line)
    out.append("};")
    out.append("")


def specials(name, method):
    """Mappings to several characters."""
    out.append(f"static const tspecial_case {name}[] = {{")
    line = "   "
    for cp in range(0x110000):
        if 0xD800 <= cp < 0xE000:
            continue
        m = method(chr(cp))
        if len(m) > 1:
            v = [ord(c) for c in m] + [0] * (3 - len(m))
            item = f" {{0x{cp:x}, {{0x{v[0]:x}, 0x{v[1]:x}, 0x{v[2]:x}}}}},"
            if len(line) + len(item) > 100:
                out.append(line)
                line = "   "
            line += item
    out.append(line)
    out.append("};")
    out.append("")


specials("special_upper", str.upper)
specials("special_title", str.title)
specials("special_fold", str.casefold)
# Folding to one character that is not the lower case.
out.append("static const tspecial_case single_fold[] = {")
line = "   "
for cp in range(0x110000):
    c = chr(cp)
    if not 0xD800 <= cp < 0xE000 and len(c.casefold()) == 1 and c.casefold() != c.lower():
        item = f" {{0x{cp:x}, {{0x{ord(c.casefold()):x}, 0x0, 0x0}}}},"
        if len(line) + len(item) > 100:
            out.append(line)
            line = "   "
        line += item
out.append(line)
out.append("};")
out.append("")
ranges("extra_digit", lambda c: c.isdigit() and not c.isdecimal())
ranges("extra_numeric", lambda c: c.isnumeric() and u.category(c)[0] != "N")
# Other_Lowercase and Other_Uppercase: cased, though not of category Ll, Lu, Lt.
ranges("extra_lower", lambda c: c.islower() and u.category(c) != "Ll")
ranges("extra_upper", lambda c: c.isupper() and u.category(c) != "Lu")
# Case_Ignorable as str.lower() sees it in front of a final sigma, beyond Mn Me Cf Lm Sk.
ranges("extra_ignorable", lambda c: u.category(c) not in ("Mn", "Me", "Cf", "Lm", "Sk")
       and ("A" + c + "\u03a3").lower()[-1] == "\u03c2" and not (c.isupper() or c.islower() or c.istitle()))
open("src/text/template/pychar_tables.inc", "w").write("\n".join(out))
