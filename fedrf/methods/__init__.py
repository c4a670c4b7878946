"""Methods, one file each; `METHODS` is the registry."""

from fedrf.methods import fedavg, fedrf_tca, source_only
from fedrf.methods.base import Inbox, Method

METHODS: dict[str, Method] = {
    method.name: method for method in (fedrf_tca.PLUS, fedrf_tca.LITERAL, fedavg.METHOD, source_only.METHOD)
}

__all__ = ["METHODS", "Inbox", "Method"]
