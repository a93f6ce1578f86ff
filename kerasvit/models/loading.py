"""Builds a variant and loads a checkpoint into it."""

import logging
import math
from contextlib import contextmanager

import keras

from kerasvit.arguments import ArgumentError
from kerasvit.checkpoints import CheckpointError, assign, printable
from kerasvit.hub.repository import base_of, find_weights, held_to, named
from kerasvit.layers.position_embedding import table_grid

from .arguments import sides
from .labels import check_count
from .limits import build_for, check_arguments
from .transforms import customary, size_of, stated, transform_of

log = logging.getLogger("kerasvit")

HEADS = ["head", "head_distillation"]  # layers that depend on the number of classes


def entry_of(weights, variant):
    """Returns the catalogue entry that `weights` is or names, or None.

    Raises:
        CheckpointError: It is of another variant.
    """
    entry = named(weights, variant.name)
    if entry and entry.model != variant.name:
        raise CheckpointError(
            f"{entry.tag!r} of {entry.model} are no weights of {variant.label}. Build "
            f"kerasvit.{entry.model} with them; kerasvit.list_weights("
            f"{variant.label!r}) shows those of {variant.label}."
        )
    return entry


class Loading:
    """The arguments of a model, from a checkpoint and a caller.

    Args:
        weights: Path of a file or folder.
        variant: `Variant` that is asked for.
        explicit: The builder's arguments that the caller gave; they win.
        source_grid: (height, width) in patches of the file's position table, or None.
        label_names: Names of the classes that the caller gave, or None.

    Attributes:
        kwargs: All arguments of the builder.
        source_size: (height, width) in pixels that the weights were made for.

    Raises:
        CheckpointError: The file cannot be read, or says something impossible.
    """

    def __init__(self, weights, variant, explicit, source_grid=None, label_names=None):
        self.variant = variant
        self.label_names = label_names
        self.explicit = explicit
        self.explicit_grid = source_grid
        self.entry = entry_of(weights, variant)
        if self.entry:
            self._check_entry()
        self.checkpoint = find_weights(self.entry or weights, variant.label)
        self._check_architecture()
        self.made = {**variant.defaults, **self.checkpoint.builder_changes}
        variant.check_names(
            {printable(key): value for key, value in self.made.items()},
            f"{printable(self.checkpoint.path)}, of a newer kerasvit: ",
        )
        self.kwargs = {**self.made, **variant.numbers, **explicit}
        if missing := sorted(variant.required - set(self.kwargs)):
            raise CheckpointError(
                f"{self.checkpoint.path} does not say {', '.join(missing)}. Build the "
                "variant that it is of: kerasvit.ViTB16(weights=...), or another."
            )
        try:
            with self._blaming_the_variant():
                self.source_size = self._source_size()
        except (TypeError, ZeroDivisionError) as error:
            raise CheckpointError(
                f"The configuration beside {self.checkpoint.path} holds a value of a "
                f"wrong kind ({error}): {self.kwargs!r:.500}. Save the model again."
            ) from error
        if "image_size" not in explicit:
            self.kwargs["image_size"] = self.source_size

    def preprocessing(self):
        """Returns the evaluation transform of the weights at their own size."""
        if self.entry:
            return transform_of(self.entry)
        return stated(self.checkpoint) or customary(
            self.checkpoint, self.variant, self.source_size
        )

    def record(self):
        """Returns the fields of `ImageModel.record` that describe the weights."""
        fields = {"origin": self.checkpoint.made_by, "label_names": self._label_names()}
        if entry := self.entry:
            base = {"source": entry.source, "license": entry.license}
        else:
            base = base_of(self.checkpoint)
        return {**fields, "base": base} if base else fields

    def build(self, kwargs):
        """Builds the model for `fill`, without drawing random weights."""
        self._log_assumptions()
        with self._blaming_the_variant():
            return build_for(
                self.checkpoint, self.variant.builder, kwargs, self.explicit
            )

    def fill(self, model, kernel=None):
        """Assigns all weights to the model, or raises a `CheckpointError`."""
        with held_to(self.checkpoint), self._blaming_the_variant() as mismatch:
            assign(
                model,
                self.checkpoint,
                self.checkpoint.key_map(self.kwargs),
                without=self._left_out(),
                source_grids=self._source_grids(model),
                kernel=kernel or self.checkpoint.kernel,
            )
            if mismatch:
                # All shapes agree, and yet it is another model: its heads differ.
                raise CheckpointError("Every tensor fits, but not what it means.")
        self._check_head(model)

    def _log_assumptions(self):
        """Logs in one line what was assumed, as neither files nor caller say it."""
        if self.entry:
            return  # weights that have a name are of the variant as it is
        names, words = self.checkpoint.left_open
        names = [key for key in names if key in self.kwargs.keys() - self.explicit]
        assumed = [f"{key}={self.kwargs[key]!r}" for key in names] + [*words]
        if not assumed:
            return
        stated = ", ".join(f"{key}=" for key in names)
        ways = [f"state {stated} in the call"] if names else []
        if self.checkpoint.origin in ("timm", "transformers"):
            ways.append("put the config.json of the model beside the file")
        log.warning(
            "%s does not tell all that the model computes. Assumed: %s.%s",
            self.checkpoint.path,
            ", ".join(assumed),
            f" If it differs, {', or '.join(ways)}." if ways else "",
        )

    def _check_architecture(self):
        builders, wanted = self.checkpoint.builders, self.variant.builder.__name__
        if wanted in builders:
            return
        path, label = self.checkpoint.path, self.variant.label
        raise CheckpointError(
            f"{path} holds a {printable(' or a '.join(builders))}, in the names of "
            f"{self.checkpoint.origin}, not the {wanted} that {label} is. Build the "
            "variant that it is of: kerasvit.list_models() names all, and "
            "kerasvit.from_pretrained opens what save_pretrained wrote."
        )

    def _check_entry(self):
        """Raises before the download where the weights cannot fit."""
        check_arguments(self.variant, self.explicit)
        name, classes = f"{self.entry.model} {self.entry.tag!r}", self.entry.classes
        wanted = {"num_classes": classes, **self.variant.numbers, **self.explicit}
        check_count(self.label_names, wanted["num_classes"])
        if self.entry.experimental:
            log.warning("%s is experimental: %s.", name, self.entry.experimental)
        if self.entry.head == "zeroed" and wanted["num_classes"] == classes:
            raise _no_classifier(name, classes)

    def _check_head(self, model):
        """Raises where the head of a foreign file holds zeros only."""
        kept = self.kwargs["num_classes"] == self.made["num_classes"]
        if self.checkpoint.record or not kept:
            return
        for variable in model.weights:
            if variable.path == "head/kernel" and not keras.ops.any(variable.value):
                raise _no_classifier(self.checkpoint.path, self.made["num_classes"])

    def _source_size(self):
        declared, path = self.checkpoint.image_size, self.checkpoint.path
        table = self.checkpoint.cells(self.kwargs)
        windows = self.checkpoint.builder_changes.get("image_size")  # Swin's tell it
        likely = declared or windows or size_of(self.checkpoint)
        if not table:
            return tuple(sides(likely or self.made["image_size"]))
        name, cells, stride = table
        fits = likely and math.prod(self._grid(likely, stride)) == cells
        if fits and not self.explicit_grid:
            return likely
        positions = self.kwargs.get("positions")
        hint = positions and (
            f" Counted with positions={positions!r}: give another `positions` if class "
            "and register tokens have rows, or none."
        )
        if declared and not self.explicit_grid:
            raise CheckpointError(
                f"{name} of {path} has {cells} patch rows, of {stride} × {stride} "
                f"pixels each, and its configuration says images of {declared[0]} × "
                f"{declared[1]}. Correct that, or give `source_grid`.{hint or ''}"
            )
        try:
            grid = table_grid(
                cells,
                own_grid=self._grid(self.kwargs["image_size"], stride),
                source_grid=self.explicit_grid,
                name=f"{name} of {path}",
            )
        except ValueError as error:
            raise CheckpointError(f"{error}{hint or ''}") from error
        return tuple(side * stride for side in grid)

    def _source_grids(self, model):
        """Returns {layer: (height, width)} of the checkpoint's grids."""
        table = self.checkpoint.cells(self.kwargs)
        stride = table[2] if table else 1
        sizes = (self.source_size, model.record["kwargs"]["image_size"])
        made, built = (self._grid(size, stride) for size in sizes)
        return {
            layer.name: self.explicit_grid
            or tuple(
                cells * then // now
                for cells, then, now in zip(layer.grid, made, built, strict=True)
            )
            for layer in model.layers
            if hasattr(layer, "grid")
        }

    def _grid(self, image_size, stride):
        """Returns (height, width) in cells; `partial_patches` drops partial ones."""
        height, width = sides(image_size)
        if self.kwargs.get("partial_patches"):
            return height // stride, width // stride
        return -(-height // stride), -(-width // stride)

    def _left_out(self):
        """Returns layers whose tensors are not loaded, and logs them."""
        layers, path = [], self.checkpoint.path
        had, wanted = self.made["num_classes"], self.kwargs["num_classes"]
        if wanted != had:
            layers += HEADS
            new = f"a fresh head of zeros for {wanted} classes" if wanted else "no head"
            old = f"that for {had}" if had else "none"
            log.warning("%s: %s, in place of %s.", path, new, old)
        size = "representation_size"
        if self.made.get(size) and not self.kwargs.get(size):
            layers.append("pre_logits")
            log.warning("%s: its pre-logits are left out.", path)
        return layers

    def _label_names(self):
        count = self.kwargs["num_classes"]
        if self.label_names:  # the caller's; checked when they were read
            return self.label_names
        if not count or count != self.made["num_classes"]:
            return None
        names = self.checkpoint.label_names
        # Of transformers, whose configurations name classes, None is for not known.
        known = self.checkpoint.record or self.checkpoint.origin == "transformers"
        if names is None and count == 1000 and not known:
            return "imagenet1k"
        listed = isinstance(names, list) and len(names) == count
        listed = listed and all(isinstance(name, str) for name in names)
        if not listed and names not in (None, "imagenet1k"):
            raise CheckpointError(
                f"{self.checkpoint.path}: its configuration must name {count} classes. "
                f"Received: {names!r:.200}. Correct `label_names` or `id2label` there."
            )
        return names

    @contextmanager
    def _blaming_the_variant(self):
        """Context that explains errors by a wrong variant or a wrong file."""
        values = {**self.made, **self.checkpoint.sizes}
        mismatch = self.variant.mismatch(values, self.explicit)
        try:
            yield mismatch
        except ValueError as error:
            if mismatch:
                mismatch = f"{self.checkpoint.path} {printable(mismatch)}"
                raise CheckpointError(f"{mismatch}\n{error}") from error
            wrong = set(error.arguments if isinstance(error, ArgumentError) else ())
            if wrong & self.kwargs.keys() and not wrong & self.explicit.keys():
                raise CheckpointError(
                    f"{self.checkpoint.path}, or the configuration beside it, asks for "
                    f"what is not built: {error}"
                ) from error
            raise


def _no_classifier(name, classes):
    return CheckpointError(
        f"{name} has no classifier: its head of {classes} classes holds zeros alone. "
        "Pass `num_classes`: your own number for a fresh head, or 0 for features."
    )
