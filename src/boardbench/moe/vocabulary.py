"""A small byte-level vocabulary, so that a made model reads and writes any text."""

from __future__ import annotations

from dataclasses import dataclass

from gguf import TokenType

_MERGES = ("t h", "th e", "i n", "e r", "a n", "o n", "r e", "Ġ the", "an d", "Ġ and", "Ġ a", "Ġ t", "o u", "s t")
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens with their types, the merges of byte-pair encoding, and the ids of the two ends."""

    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    merges: tuple[str, ...]
    bos: int
    eos: int


def byte_letters() -> tuple[str, ...]:
    """The printable letter that stands for each byte in byte-level BPE: itself if printable, else from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters = []
    moved = 0
    for byte in range(256):
        if byte in printable:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + moved))
            moved += 1
    return tuple(letters)


def small_vocabulary(multiple_of: int = 32) -> Vocabulary:
    """256 bytes, a few merges and three control tokens, filled up to a multiple with tokens that nothing encodes to."""
    tokens = [*byte_letters(), *(merge.replace(" ", "") for merge in _MERGES)]
    types = [TokenType.NORMAL] * len(tokens)
    tokens += _CONTROL
    types += [TokenType.CONTROL] * len(_CONTROL)
    while len(tokens) % multiple_of:
        tokens.append(f"<unused{len(tokens)}>")
        types.append(TokenType.UNUSED)
    return Vocabulary(
        tokens=tuple(tokens),
        types=tuple(types),
        merges=_MERGES,
        bos=tokens.index("<|endoftext|>"),
        eos=tokens.index("<|im_end|>"),
    )
