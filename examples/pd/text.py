# SPDX-License-Identifier: Apache-2.0
"""Text to tokens and back: the model's chat form, and text that appears token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHAT_FORM = (
    "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n"
    "<|im_start|>assistant\n"
)
#: How GGUF marks a token that stands for no text, such as <|im_end|>.
CONTROL_TOKEN = 3


@dataclass(frozen=True)
class Chat:
    """The tokenizer of the model, and the form in which it was taught to converse."""

    tokenizer: Tokenizer

    @classmethod
    def from_vocabulary(
        cls, tokens: Sequence[str], merges: Sequence[str], token_types: Sequence[int]
    ) -> Chat:
        """Build the byte-level BPE that the weight file describes."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
        vocabulary = {token: index for index, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(
            [
                AddedToken(token, special=True, normalized=False)
                for token, kind in zip(tokens, token_types, strict=True)
                if kind == CONTROL_TOKEN
            ]
        )
        return cls(tokenizer)

    def encode(self, prompt: str) -> list[int]:
        """Return the tokens of a conversation in which the user has just said `prompt`."""
        form = CHAT_FORM.format(system=SYSTEM, prompt=prompt)
        return list(self.tokenizer.encode(form).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without control tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


class TextStream:
    """Turns tokens into text piece by piece; a character split over tokens waits for its end."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._tokens: list[int] = []
        self._shown = ""

    def add(self, token: int) -> str:
        """Take one more token and return the text that it completes."""
        self._tokens.append(token)
        text = self._chat.decode(self._tokens)
        return "" if text.endswith("\N{REPLACEMENT CHARACTER}") else self._advance(text)

    def finish(self) -> str:
        """Return what was held back."""
        return self._advance(self._chat.decode(self._tokens))

    @property
    def text(self) -> str:
        """All text returned so far."""
        return self._shown

    def _advance(self, text: str) -> str:
        piece, self._shown = text[len(self._shown) :], text
        return piece
