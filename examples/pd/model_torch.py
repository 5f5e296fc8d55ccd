# SPDX-License-Identifier: Apache-2.0
"""The same Llama computed by transformers, whose cache layers are views of memory we give it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LlamaConfig as HfConfig
from transformers import LlamaForCausalLM, StaticCache
from transformers.cache_utils import Cache as HfCache
from transformers.cache_utils import StaticLayer

import hixl_rma as rma
from pd.cache_layout import KEY, VALUE
from pd.llama import Cache, Floats, LlamaConfig, OnLayer, Weights

#: GGUF's name of each part of a layer, and the name it has in transformers.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class TorchLlama:
    """The torch backend, on one thread: then two runs of it agree in every bit."""

    def __init__(self, weights: Weights) -> None:
        torch.set_num_threads(1)
        self.config = weights.config
        with torch.device("meta"):
            self.llama = LlamaForCausalLM(hf_config(weights.config))
        self.llama.load_state_dict(hf_tensors(weights), assign=True)
        self.llama.tie_weights()
        self.llama.model.rotary_emb = type(self.llama.model.rotary_emb)(self.llama.config)
        self.llama.eval()

    def cache_in(self, win: rma.Window) -> torch.Tensor:
        """Return this rank's part of a window as a tensor over the same bytes."""
        tensor: torch.Tensor = win.tensor()
        return tensor

    def session(
        self, cache: Cache, *, filled: int = 0, on_layer: OnLayer | None = None
    ) -> TorchSession:
        """Start on a cache (tensor or array) whose first `filled` tokens are there."""
        tensor = torch.as_tensor(cache)
        layers = [WindowLayer(index, rows, on_layer) for index, rows in enumerate(tensor)]
        if filled:
            for layer in layers:
                layer.adopt(filled)
        return TorchSession(self.llama, HfCache(layers=layers))

    def reference_session(self, max_len: int) -> TorchSession:
        """Start on transformers' own static cache, which knows nothing of windows."""
        return TorchSession(
            self.llama, StaticCache(config=self.llama.config, max_cache_len=max_len)
        )


class TorchSession:
    """One sequence over one transformers cache."""

    def __init__(self, llama: LlamaForCausalLM, cache: HfCache) -> None:
        self._llama, self._cache = llama, cache

    def feed(self, tokens: Sequence[int]) -> Floats:
        """Append tokens to the sequence and return the logits after the last one."""
        with torch.inference_mode():
            ids = torch.tensor([list(tokens)])
            output = self._llama(ids, cache=self._cache, logits_to_keep=1)
            logits: Floats = output.logits[0, -1].numpy()
        return logits


class WindowLayer(StaticLayer):  # type: ignore[misc]  # transformers need not be here
    """A static cache layer in memory it does not own: a slice of a window."""

    def __init__(self, index: int, rows: torch.Tensor, on_layer: OnLayer | None) -> None:
        super().__init__(max_cache_len=rows.shape[1])
        # (max_len, heads, size) as transformers sees it: (1, heads, max_len, size), no copy.
        self._rows = [part[None].transpose(1, 2) for part in rows]
        self._index, self._on_layer = index, on_layer

    def lazy_initialization(self, *_states: torch.Tensor) -> None:
        """Take the given memory where a StaticLayer would allocate its own."""
        self.keys, self.values = self._rows[KEY], self._rows[VALUE]
        self.device, self.dtype = self.keys.device, self.keys.dtype
        self.batch_size, self.num_heads = self.keys.shape[:2]
        self.k_head_dim, self.v_head_dim = self.keys.shape[-1], self.values.shape[-1]
        self.is_initialized = True

    def adopt(self, length: int) -> None:
        """Count the first `length` tokens, which came from elsewhere, as seen."""
        self.lazy_initialization()
        self.cumulative_length.fill_(length)

    def update(self, *states: torch.Tensor, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new keys and values; attention to this layer comes after this call."""
        first = int(self.cumulative_length)
        stored: tuple[torch.Tensor, torch.Tensor] = super().update(*states, **options)
        if self._on_layer is not None:
            self._on_layer(self._index, first, int(self.cumulative_length))
        return stored


def hf_config(config: LlamaConfig) -> HfConfig:
    """Return the configuration in transformers' words."""
    return HfConfig(
        num_hidden_layers=config.num_layers,
        hidden_size=config.hidden_size,
        intermediate_size=config.ffn_size,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        rms_norm_eps=config.rms_eps,
        max_position_embeddings=config.context_length,
        tie_word_embeddings=True,
        dtype=torch.float32,
    )


def hf_tensors(weights: Weights) -> dict[str, torch.Tensor]:
    """Return the weights under transformers' names and in its order of rotated pairs."""
    source, config = weights.tensors, weights.config
    named = {
        "model.embed_tokens.weight": source["token_embd.weight"],
        "lm_head.weight": source["token_embd.weight"],
        "model.norm.weight": source["output_norm.weight"],
    }
    for layer in range(config.num_layers):
        for theirs, ours in LAYER_NAMES.items():
            values = source[f"blk.{layer}.{theirs}.weight"]
            if theirs in ("attn_q", "attn_k"):
                # GGUF: pairs (2i, 2i + 1) of a head; transformers: pairs (i, i + size / 2).
                by_pair = values.reshape(-1, config.head_dim // 2, 2, config.hidden_size)
                values = by_pair.swapaxes(1, 2).reshape(values.shape)
            named[f"model.layers.{layer}.{ours}.weight"] = values
    return {name: torch.from_numpy(values) for name, values in named.items()}
