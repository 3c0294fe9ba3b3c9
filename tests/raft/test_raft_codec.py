import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgpack import ExtType, Timestamp, packb

from tenure_cluster.raft.codec import ITEMS_MAX, Malformed, pack, unpack

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.binary()
    | st.text(st.characters(exclude_categories=("Cs",)))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5).map(tuple) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    assert unpack(pack(value), bytes_max=1 << 20) == value


def test_lists_come_back_as_tuples() -> None:
    assert unpack(pack([1, [b"x"]]), bytes_max=100) == (1, (b"x",))


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_decode_or_be_refused(data: bytes) -> None:
    try:
        value = unpack(data, bytes_max=200)
    except Malformed:
        return
    pack(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\x01\x02",
        b"\xa1\xff",
        b"\x81\x01\x01",
        b"\x81\x90\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 5000 + b"\xc0",
        b"\xc7\x00\xff",
        b"\xc7\x00\x05",
        packb(ExtType(5, b"x")),
        packb(Timestamp(1)),
    ],
    ids=[
        "nothing",
        "reserved byte",
        "incomplete",
        "more than one value",
        "text that is not UTF-8",
        "number as key",
        "array as key",
        "array longer than the data",
        "nesting",
        "empty timestamp",
        "empty extension",
        "extension",
        "timestamp",
    ],
)
def test_what_is_not_plain_data_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(data, bytes_max=1 << 20)


def test_more_bytes_than_allowed_are_refused_naming_both_numbers() -> None:
    with pytest.raises(Malformed, match="101 bytes, at most 100"):
        unpack(bytes(101), bytes_max=100)


def test_more_items_than_allowed_are_refused() -> None:
    many = pack([0] * (ITEMS_MAX + 1))
    with pytest.raises(Malformed):
        unpack(many, bytes_max=1 << 20)
    assert len(unpack(many, bytes_max=1 << 20, items_max=ITEMS_MAX + 1)) == ITEMS_MAX + 1


@pytest.mark.parametrize("value", [object(), {1, 2}, 1 << 70], ids=["object", "set", "too large a number"])
def test_packing_what_is_not_plain_data_is_a_bug(value: object) -> None:
    with pytest.raises((TypeError, OverflowError)):
        pack(value)
