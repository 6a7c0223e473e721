"""What was added or renamed after the first records: by it, the same run always has one digest."""

from dpbench.privacy.guarantee import CORRECTED

ADDED_TO_METHODS = {"clip": "abadi", "style": "flat"}
"""Settings of methods that were added after the first records, with the values those used."""

ADDED_TO_METHOD: dict[str, dict[str, str | None]] = {
    "dp_fedsgd": {"variant": CORRECTED, "local_batch_size": None},
    "dp_fedavg": {"variant": CORRECTED},
    "dicesgd": {"variant": CORRECTED},
}
"""The same for single methods, where other methods have always had the setting."""

_TO_ROWS: dict[str, object] = {"test_rows": None, "user": None, "people": None}
_TO_IMAGES = {**_TO_ROWS, "group": None}
_TO_TABLES = {
    **_TO_ROWS,
    "missing": "refuse",
    "missing_values": [],
    "bounds": None,
    "categories": None,
    "large": False,
    "quotes": "double",
    "header": "first",
    "encoding": "utf-8",
    "skip": 0,
    "decimal": ".",
    "thousands": None,
    "padding": 0,
}

ADDED_TO_PARTS: dict[str, dict[str, object]] = {
    "dpbench.data.adult.Adult": {"group": "sex"},
    "dpbench.data.dutch.Dutch": {"group": "sex"},
    "dpbench.data.custom.image_rows.HubImages": {**_TO_IMAGES, "test_part": None},
    "dpbench.data.custom.image_rows.ImageFolder": {
        **_TO_IMAGES,
        "labels_checksum": None,
        "image": "file",
        "target": None,
    },
    "dpbench.data.custom.table_rows.CsvFile": {**_TO_TABLES, "test_checksum": None},
    "dpbench.data.custom.table_rows.HubTable": {**_TO_TABLES, "test_part": None, "separator": None},
    "dpbench.models.wide_resnet.WideResNet": {"order": 0, "scale_norm": False},
    "dpbench.models.resnet9.ResNet9": {"scale_norm": False},
    "dpbench.models.timm_network.TimmNetwork": {"fix": False, "share": 0.01},
    "dpbench.models.bert.Bert": {"share": 0.01},
    "dpbench.models.text.Text": {"pairs": "cross_encoder"},
    "dpbench.data.snli.Snli": {"part": "train"},
}
"""By target, settings of data sets and models that were added after the first records, with the
values those used, at which records leave them out."""

FIRST_NAMES = {
    "dpbench.training.budget": "dpbench.privacy",
    "dpbench.mechanism.schedules": "dpbench.schedules",
    **{
        f"dpbench.data.derive.{name}": f"dpbench.data.{name}"
        for name in ("augmentation", "normalization", "unbalanced", "users")
    },
}
"""Modules that `_target_`s name, with their original names, which digests keep."""

CURRENT_NAMES = {first: current for current, first in FIRST_NAMES.items()}

CURRENT_OPTIONS = {("schedule", "mixup"): "bound_switch"}
"""Options that were renamed after the first records; their groups are not in the digest."""
