"""Sharing methods. ``METHODS`` maps the name used on the command line to the settings class; ``register`` adds one."""

from typing import Any, TypeVar

from prism_marl.errors import UserError, nearest
from prism_marl.registration import refuse_taken_name, settings_name
from prism_marl.sharing.adaps import AdaPS
from prism_marl.sharing.base import RoleLinear, Sharing, network_regularisers, role_layers
from prism_marl.sharing.cash import CASH
from prism_marl.sharing.controls import FiLM, RandomSpectrum, SpectrumDelta
from prism_marl.sharing.dico import DiCo
from prism_marl.sharing.experts import SharedExperts
from prism_marl.sharing.fups import FuPS, FuPSID
from prism_marl.sharing.gradps import GradPS
from prism_marl.sharing.hetdps import HetDPS
from prism_marl.sharing.hps import HPS
from prism_marl.sharing.hypermarl import HyperMARL
from prism_marl.sharing.kaleidoscope import Kaleidoscope
from prism_marl.sharing.lorasa import LoRASA
from prism_marl.sharing.multihead import MultiHead
from prism_marl.sharing.nops import NoPS
from prism_marl.sharing.prism import FuPSIDSVD, Prism
from prism_marl.sharing.seps import SePS
from prism_marl.sharing.snp import SNP

METHODS: dict[str, type[Sharing]] = {
    "nops": NoPS,
    "fups": FuPS,
    "fups_id": FuPSID,
    "fups_id_svd": FuPSIDSVD,
    "seps": SePS,
    "snp": SNP,
    "adaps": AdaPS,
    "kaleidoscope": Kaleidoscope,
    "prism": Prism,
    "hypermarl": HyperMARL,
    "lorasa": LoRASA,
    "spectrum_delta": SpectrumDelta,
    "random_spectrum": RandomSpectrum,
    "film": FiLM,
    "multihead": MultiHead,
    "experts": SharedExperts,
    "cash": CASH,
    "hps": HPS,
    "dico": DiCo,
    "gradps": GradPS,
    "hetdps": HetDPS,
}


SharingClass = TypeVar("SharingClass", bound=type[Any])


def register(cls: SharingClass) -> SharingClass:
    """Add a sharing method of your own, also as a decorator: from now on configs, presets and the command line know it
    by the name in its field ``method``."""
    found: Any = cls
    if not (isinstance(found, type) and issubclass(found, Sharing)):
        raise UserError(
            f"{getattr(found, '__name__', found)}: a sharing method is a subclass of prism_marl.sharing.Sharing"
        )
    name = settings_name(cls, "sharing method", "method")
    refuse_taken_name("sharing method", name, METHODS.get(name), found)
    METHODS[name] = found
    return cls


def method(name: str) -> type[Sharing]:
    """The settings class of a method; ``-`` and ``+`` in the name count as ``_``."""
    known = name.lower().replace("-", "_").replace("+", "_")
    if known not in METHODS:
        raise UserError(f"sharing: there is no method '{name}'; {nearest(known, METHODS)}")
    return METHODS[known]


__all__ = [
    "CASH",
    "HPS",
    "METHODS",
    "SNP",
    "AdaPS",
    "DiCo",
    "FiLM",
    "FuPS",
    "FuPSID",
    "FuPSIDSVD",
    "GradPS",
    "HetDPS",
    "HyperMARL",
    "Kaleidoscope",
    "LoRASA",
    "MultiHead",
    "NoPS",
    "Prism",
    "RandomSpectrum",
    "RoleLinear",
    "SePS",
    "SharedExperts",
    "Sharing",
    "SpectrumDelta",
    "method",
    "network_regularisers",
    "register",
    "role_layers",
]
