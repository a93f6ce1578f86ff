import keras
import pytest


@pytest.mark.parametrize("what", ["forward", "sam"])
def test_prints_every_contender(what, capsys):
    import benchmark

    config = benchmark.Config(
        what, model="ViTTi16", image_size=16, batch_size=2, rounds=1, warmup=1
    )
    benchmark.main(config)
    printed = capsys.readouterr().out
    assert "kerasvit" in printed and keras.backend.backend() in printed
    assert ("plain step" in printed) == (what == "sam")
