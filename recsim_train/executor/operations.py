"""Every kernel by its operation's name."""

from __future__ import annotations

from collections.abc import Callable

from recsim_train.executor.kernels import KERNELS as _KERNELS
from recsim_train.executor.net_kernels import NET_KERNELS

KERNELS: dict[str, Callable[..., object]] = {**_KERNELS, **NET_KERNELS}
