"""Which objects are found in the memory."""

import keras

from kerasvit.backend.garbage import living
from tests.once import on_last_backend


class Unhashable(type):
    __hash__ = None


class First(metaclass=Unhashable):
    pass


class Second(First):
    def __getattribute__(self, name):
        raise RuntimeError("nobody asks an object that is not meant")


@on_last_backend
def test_living_objects_are_those_of_a_class_and_of_derived_ones():
    first, second, model = First(), Second(), keras.Sequential()
    assert {id(x) for x in living(First)} == {id(first), id(second)}
    assert [id(x) for x in living(Second)] == [id(second)]
    assert any(x is model for x in living(keras.Model))
