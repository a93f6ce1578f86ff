"""Names of processors; those of accelerators are the backends' own."""

import pytest
from devices import device_name

TEXT = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: {}\n\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC 7B13", "AMD EPYC 7B13, "),
        ("AMD EPYC", "AMD EPYC (family 25, model 17), "),
    ],
)
def test_processors(name, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(device_name, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(device_name, "accelerator", lambda: None)
    device_name.CPUINFO.write_text(2 * TEXT.format(name))
    assert device_name.of_first().startswith(expected)


def test_other_systems(monkeypatch, tmp_path):
    monkeypatch.setattr(device_name, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(device_name, "accelerator", lambda: None)
    monkeypatch.setattr(device_name.platform, "processor", lambda: "arm")
    assert device_name.of_first().startswith("arm, ")
