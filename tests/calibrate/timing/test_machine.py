"""Which datasheet a device has by the name it reports, if any."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from calibrate.timing import machine
from calibrate.timing.machine import datasheet, device_of

GIB = 2**30
KNOWN = [
    ("NVIDIA A100-SXM4-80GB", 79.2, "NVIDIA A100 SXM 80GB"),
    ("NVIDIA H100 80GB HBM3", 79.1, "NVIDIA H100 SXM 80GB"),
    ("NVIDIA H200", 139.8, "NVIDIA H200 SXM 141GB"),
    ("NVIDIA B200", 178.4, "NVIDIA B200 SXM 180GB"),
    ("NVIDIA L4", 22.0, "NVIDIA L4 24GB"),
    ("NVIDIA L40S", 44.4, "NVIDIA L40S 48GB"),
    ("NVIDIA GeForce RTX 4090", 23.5, "NVIDIA RTX 4090 24GB"),
    ("NVIDIA GeForce RTX 5090", 31.4, "NVIDIA RTX 5090 32GB"),
    (
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        94.9,
        "NVIDIA RTX PRO 6000 Blackwell Server 96GB",
    ),
    ("AMD Instinct MI300X", 191.7, "AMD MI300X 192GB"),
]
OTHERS = [
    ("NVIDIA GeForce RTX 3060", 12),
    ("NVIDIA GeForce RTX 4080", 16),
    ("NVIDIA GeForce RTX 4090 D", 24),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16),
    ("NVIDIA GeForce RTX 5070 Ti", 16),
    ("NVIDIA RTX A6000", 48),
    ("NVIDIA RTX 6000 Ada Generation", 48),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 96),
    ("NVIDIA A100-SXM4-40GB", 39.4),
    ("NVIDIA A100 80GB PCIe", 79.2),
    ("NVIDIA H100 PCIe", 79.2),
    ("NVIDIA H100 NVL", 94),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.8),
    ("NVIDIA H200 MIG 3g.71gb", 70),
    ("NVIDIA H200", 70),
    ("NVIDIA L40", 44.4),
    ("NVIDIA GH200 480GB", 94),
    ("Tesla T4", 15),
]


@pytest.mark.parametrize(("name", "gib", "sheet"), KNOWN)
def test_a_device_has_the_datasheet_of_its_model(name: str, gib: float, sheet: str) -> None:
    found = datasheet(name, gib * GIB)
    assert found is not None
    assert found.name == sheet


@pytest.mark.parametrize(("name", "gib"), OTHERS)
def test_another_model_variant_or_slice_has_none(name: str, gib: float) -> None:
    assert datasheet(name, gib * GIB) is None


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("NVIDIA H200", "NVIDIA H200 SXM 141GB: vendor datasheet"),
        ("NVIDIA H200 MIG 7g.141gb", "measured"),
    ],
)
def test_a_device_keeps_the_name_it_reports_and_says_where_its_numbers_are_from(
    name: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    properties = SimpleNamespace(name=name, total_memory=140 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)

    def measured(torch: object, device: str, name: str, memory: float, dtype: str) -> machine.Device:
        return machine.Device(
            name=name,
            memory_bytes=memory,
            bandwidth_bytes_per_s=1e12,
            peak_flops_per_s=1e14,
            source="measured",
        )

    monkeypatch.setattr(machine, "_measured_device", measured)
    device = device_of("cuda", "bfloat16")
    assert device.name == name
    assert device.source.startswith(source)
    assert device.memory_bytes == 140 * GIB
