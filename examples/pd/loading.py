# SPDX-License-Identifier: Apache-2.0
"""What each rank does by itself before the two meet: load the model, and tokenize the prompt."""

from __future__ import annotations

from dataclasses import dataclass

from pd import cli, weights
from pd.cli import Options, UserError
from pd.llama import Model, Weights
from pd.text import Chat


@dataclass(frozen=True)
class Loaded:
    """What a rank has before it meets the other one."""

    options: Options
    model: Model
    chat: Chat
    prompt: list[int]


def load(options: Options, *, loud: bool) -> Loaded:
    """Load the model for a backend; a `loud` rank tells how far it got.

    Raises
    ------
    UserError
        When something is not installed, or the prompt does not fit.
    """
    path = weights.find_weights()
    if loud:
        cli.say(f"loading {weights.MODEL_NAME}:")
    checkpoint = weights.read(path, lambda step: cli.say(f" {step}") if loud else None)
    if loud:
        cli.say("\n")
    config = checkpoint.weights.config
    if options.max_len > config.context_length:
        message = f"--max-len {options.max_len}: this model takes {config.context_length} tokens"
        raise UserError(message)
    prompt = [] if options.prompt is None else checkpoint.chat.encode(options.prompt)
    if len(prompt) + options.max_tokens > options.max_len:
        message = (
            f"a prompt of {len(prompt)} tokens and {options.max_tokens} to generate do not fit "
            f"in --max-len {options.max_len}"
        )
        raise UserError(message)
    return Loaded(options, _backend(options, checkpoint.weights), checkpoint.chat, prompt)


def _backend(options: Options, tensors: Weights) -> Model:
    if options.backend == "numpy":
        from pd.model_numpy import NumpyLlama

        return NumpyLlama(tensors)
    try:
        from pd.model_torch import TorchLlama
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'hixl-rma[demo-torch]'"
        raise UserError(message) from None
    return TorchLlama(tensors)
