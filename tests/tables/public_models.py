"""Models of public packages, small and on `meta`, with inputs that they run on.

A package that is not installed gives none. Configurations are the packages' own defaults with
fewer layers: layers repeat, pairs do not become more by it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

Case = tuple[str, Callable[[], tuple[nn.Module, dict[str, Any]]]]
"""A name, and what builds a model with keyword arguments for it."""

_NUM_LAYERS = 4
_NUM_TOKENS = 32
_DEPTHS = frozenset(
    {
        *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_blocks", "depth"),
        *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"),
    }
)


def public_cases() -> list[Case]:
    """Return models of the packages that are there, the first of each family before the others.

    Within that the order is a keyed random one: wherever time ends it, a fair sample was run.
    """
    found: list[tuple[int, str, Case]] = []
    for package, cases in _PACKAGES.items():
        if find_spec(package):
            for number, case in cases():
                key = hashlib.blake2b(case[0].encode(), digest_size=8).hexdigest()
                found.append((number, key, case))
    return [case for number, _, case in sorted(found, key=lambda entry: entry[:2]) if number < 2]


def stand_in_for_compiled_ops() -> torch.library.Library:
    """Declare torchvision's compiled ops, so that it imports where its binary fits no torch here.

    The library must be kept: what it declares goes with it.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def _vision_cases() -> Iterator[tuple[int, Case]]:
    from torchvision import models

    taken: Counter[str] = Counter()
    for name in models.list_models():
        family = re.split(r"_|(?<=\D\D\D)\d", name)[0]
        yield taken[family], (f"torchvision {name}", _VisionModel(models.get_model, name))
        taken[family] += 1


def _timm_cases() -> Iterator[tuple[int, Case]]:
    import timm
    from timm.models import _registry

    taken: Counter[str] = Counter()
    for name in timm.list_models():
        # The variants of a file differ in widths first.
        family = _registry._model_to_module[name] + " " + re.split(r"_|\d", name)[0]
        yield taken[family], (f"timm {name}", _VisionModel(timm.create_model, name))
        taken[family] += 1


class _VisionModel:
    """Builds a model that reads images, or clips where its name says video."""

    def __init__(self, create: Callable[..., nn.Module], name: str) -> None:
        self._create = create
        self._name = name

    def __call__(self) -> tuple[nn.Module, dict[str, Any]]:
        options: dict[str, Any] = {}
        if self._create.__module__.startswith("torchvision"):
            options["weights"] = None
            if "weights_backbone" in inspect.signature(_builder(self._name)).parameters:
                options["weights_backbone"] = None
        model = self._create(self._name, **options)
        known = getattr(model, "default_cfg", None) or {}
        shape: tuple[int, ...] = (2, *known.get("input_size", (3, 224, 224)))
        if any(word in self._name for word in ("r3d", "mc3", "r2plus1d", "s3d", "mvit", "swin3d")):
            shape = (1, 3, 16, 224, 224)
        if "inception" in self._name:
            shape = (2, 3, 299, 299)
        first = next(iter(inspect.signature(model.forward).parameters))
        return model, {first: torch.ones(shape)}


def _builder(name: str) -> Callable[..., nn.Module]:
    from torchvision import models

    builder: Callable[..., nn.Module] = models.get_model_builder(name)
    return builder


def _transformers_cases() -> Iterator[tuple[int, Case]]:
    from transformers.models.auto import modeling_auto

    tables = (
        modeling_auto.MODEL_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    # A family once: its heads would count its body again.
    chosen: dict[str, str] = {}
    for table in tables:
        for kind, names in table.items():
            chosen.setdefault(kind, names if isinstance(names, str) else names[0])
    for kind, name in chosen.items():
        for number, attention in enumerate(("sdpa", "eager")):
            built = _TextModel(kind, name, attention)
            yield number, (f"transformers {name} {attention}", built)


_PACKAGES = {
    "torchvision": _vision_cases,
    "timm": _timm_cases,
    "transformers": _transformers_cases,
}


class _TextModel:
    """Builds a model of transformers from its default configuration with few layers."""

    def __init__(self, kind: str, name: str, attention: str) -> None:
        self._kind = kind
        self._name = name
        self._attention = attention

    def __call__(self) -> tuple[nn.Module, dict[str, Any]]:
        import transformers
        from transformers import CONFIG_MAPPING

        config = CONFIG_MAPPING[self._kind]()
        _shrink(config)
        model_class = getattr(transformers, self._name)
        make = functools.partial(model_class._from_config, config)
        try:
            model = make(attn_implementation=self._attention, experts_implementation="batched_mm")
        except ValueError:  # this class has no such attention or no experts
            model = make(attn_implementation="eager")
        return model, _arguments(model, config)


def _shrink(config: Any, level: int = 0) -> None:
    for name, value in list(vars(config).items()):
        if name in _DEPTHS and isinstance(value, int) and value > _NUM_LAYERS:
            for other, listed in list(vars(config).items()):
                if isinstance(listed, list) and len(listed) == value:
                    setattr(config, other, listed[:_NUM_LAYERS])
            setattr(config, name, _NUM_LAYERS)
        elif name == "use_cache":
            setattr(config, name, False)
        elif hasattr(value, "to_dict") and hasattr(value, "model_type") and level < 3:
            _shrink(value, level + 1)


def _arguments(model: nn.Module, config: Any) -> dict[str, Any]:
    accepted = inspect.signature(model.forward).parameters
    tokens = torch.ones(2, _NUM_TOKENS, dtype=torch.long)
    image = _image_shape(config)
    offered = {
        "input_ids": tokens,
        "pixel_values": torch.ones(image),
        "input_values": torch.ones(2, 16000),
        "input_features": torch.ones(2, getattr(config, "num_mel_bins", 80), 3000),
        "decoder_input_ids": tokens,
        "bbox": torch.ones(2, _NUM_TOKENS, 4, dtype=torch.long),
        "past_values": torch.ones(2, getattr(config, "context_length", None) or 64, 1),
        "inputs": tokens,
        "audio_values": torch.ones(2, 1, 16000),
    }
    main = getattr(model, "main_input_name", "input_ids")
    chosen = {name: value for name, value in offered.items() if name == main and name in accepted}
    for name in ("decoder_input_ids", "bbox", "pixel_values", "input_ids"):
        is_wanted = name in accepted and name in offered
        is_pair = name in ("pixel_values", "input_ids") and hasattr(config, "projection_dim")
        if is_wanted and (is_pair or name in ("decoder_input_ids", "bbox")):
            chosen[name] = offered[name]
    return chosen or {name: offered[name] for name in accepted if name in offered}


def _image_shape(config: Any) -> tuple[int, ...]:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 224)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return (2, getattr(vision, "num_channels", 3), height, width)
