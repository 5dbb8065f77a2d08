"""Texts that a tokenizer of its own could get wrong. Each is a plain string; none is long but for the last few."""
# ruff: noqa: E501

TORTURE = [
    "",
    " ",
    "   \t\n ",
    "a",
    "A gorgeous , witty , seductive movie .",
    "IT'S 1984 & we paid $3.50 for 2 tickets (١٢٣ ४५६ ７８９)",
    # white space of every kind, at the ends and in rows
    "\u00a0no-break\u00a0space\u202fnarrow\u2003em\u3000ideographic\u1680ogham\u205fmath",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeffmark\u2060word",
    "line\u2028separator\u2029paragraph\u0085next\x0bvertical\x0cfeed\r\nreturn",
    "\u200b\u200b leading and trailing \u200b",
    # control characters and NUL
    "nul\x00inside \x00 alone",
    "\x00",
    "\x01\x02\x03 bell\x07 escape\x1b[31m delete\x7f \x80\x8f\x9f",
    "left\u200emark\u200fright \u202aembedding\u202c \u2066isolate\u2069 \u061cletter",
    # combining marks: composed, decomposed, in odd orders, stacked, alone
    "caf\u00e9 cafe\u0301 CAFE\u0301 re\u0301sume\u0301 na\u00efve nai\u0308ve",
    "e\u0302\u0301 e\u0301\u0302 \u1ec7 e\u0323\u0302 e\u0302\u0323 o\u031b\u0301 \u00ea\u0301",
    "z\u030c\u0300 d\u017e \u01c6 \u01c4 \u01c5 q\u0307\u0323 q\u0323\u0307",
    "\u0301alone \u0301 a\u0301\u0301\u0301\u0301\u0301 Z\u0351\u036b\u0343\u036a\u0302a\u0346\u0359l\u0349g\u0326o",
    "\u212b \u00c5 A\u030a \u2126 \u03a9 \u212a K \u0340\u0341 a\u0340 a\u0341",
    "=\u0338 <\u0338 \u2260 ~\u0338 \u2241 \u223c\u0338",
    # compatibility letters, ligatures, full and half width, circled, fractions
    "\ufb01lm \ufb03 o\ufb00ice \ufb05 \ufb06 \u0132 \u0133 \u01c8 \u01f1",
    "\uff21\uff42\uff43\uff11\uff12\uff01\uff5e \uff5e\u0338 \uffe5 \uff71\uff76\uff9e\uff8a\uff9f \u30ab\u3099",
    "\u2460\u2473\u24d0\u24b6 \u00bd \u2153 \u2189 x\u00b2 H\u2082O \u2122 \u00ae \u2116 \u338f \u33c7",
    "\u00a8 \u00b4 \u00af \u00b8 a\u00a8b \u02d8 \ufdfa \ufdfb \u203c \u2047 \u2026 \u2025",
    "\U0001d4d0\U0001d4ea \U0001d7d8\U0001d7ff \U0001f100 \U0001f130 \U0001f1e6\U0001f1fa \U0001e030\U0001e037\u0306",
    "\U0001ccd6\U0001ccf0 \ua7f1 \U0001e041\u0308 \U000105d2\u0307",
    # Hangul: syllables, jamo, half composed, compatibility jamo, too many
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u116e\u11a8 \ud558\u11ab \u3131\u314f \u1100\u1100\u1161\u11a8\u11a8",
    "\u11a8 \u1161 \u1100 \uffa1\uffc2\uffa4 \uac00\u11a7 \uac00\u11a8",
    # right to left, Indic, Thai, Tibetan, Japanese, Chinese
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 \u0644\u0627 \ufefb \ufee0\ufe8e \u0622 \u0627\u0653",
    "\u05e9\u05dc\u05d5\u05dd \u05e9\u05c1\u05dc\u05d5\u05b9\u05dd \ufb2a \ufb1d \u05d9\u05b4",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0958 \u0915\u093c \u0929 \u0928\u093c \u09cb \u09c7\u09be \u0bca \u0bc6\u0bbe",
    "\u0e01\u0e33 \u0e33 \u0f73 \u0f71\u0f72 \u0f43 \u0f42\u0fb7 \u1025\u102e \u1026",
    "\u65e5\u672c\u8a9e\u306e\u6620\u753b\u3001\u6700\u9ad8\uff01 \u304c \u304b\u3099 \u304b\u309b \uf900 \U0002f800 \u2f00",
    # emoji: families, skins, flags, keycaps, variation selectors
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea 1\ufe0f\u20e3 \u2764\ufe0f",
    "\U0001f600\U0001f600\U0001f600 great\U0001f600film \U0001f3f4\U000e0067\U000e0062\U000e007f",
    # case that changes length or depends on its place
    "STRASSE stra\u00dfe \u1e9e \u0130stanbul I\u0307 \u0131 \u03a3\u03a3 \u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3. \u1f88 \u0149",
    # sentencepiece's own marks and names
    "\u2581\u2581a \u2581 b\u2581c \u2581",
    "<unk> <s> </s> \u2047 <pad> <0x41>",
    "_under_score __ ... !!! ?!? -- --- 'quotes' \"double\" it's dog\u2019s 'tis rock'n'roll",
    # unassigned, private, noncharacters, the ends of planes
    "\ue000 \uf8ff \U000f0000 \U0010ffff \ufffe \uffff \U0001fffe \u0378 \ufdd0 \ufffd",
    "\ud7ff\ue000 \U00010000 \U0001f9ff",
    "www.example.com/path?q=1&r=%20 user@mail.example #tag @name C++ a/b",
    "unknown\u2603\u2603 \u2603 \u2603\u2603\u2603 un\u2603known \u2603",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the" * 400,
    "wonderful dreadful " * 300,
]
