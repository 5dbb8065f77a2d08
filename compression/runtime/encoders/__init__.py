"""Encoders: the token ids of a batch, one text after the other, to one vector a text or one a token.

All take the same arguments. table: float32 [ids, dim]; ids: int64 [tokens of all texts]; lengths: int64 [texts], none
zero. Calling an encoder returns float32 [texts, width], its method `states` float32 [tokens, width].
"""
