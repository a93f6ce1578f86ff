"""Tensor names by source: one module per code base and architecture.

Each module has `ORIGIN`, the code base; `BUILDERS`, whose models these names are of;
`KERNEL`, how the code base resamples position tables; and the functions `recognises`,
`own_name`, `dropped`, `sizes`, `builder_changes`, `cells`, `image_size`, `label_names`
and `key_map`; those of timm also have `differs` and `config`. A module whose tensors do
not tell all that is computed has `left_open`. Files named after a code base alone,
`timm` and `google`, hold what its modules share.
"""
