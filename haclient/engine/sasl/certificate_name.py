"""The name of a certificate's owner, as a string, and the number of its signature's algorithm.

Rules
-----
* The string follows RFC 2253 as OpenSSL writes it: the last part first, every byte beyond ASCII and every
  control character as two hexadecimal digits.  Users, permissions and stored messages contain such strings.
* An attribute without a name in ``_NAMES`` is written by its number, and its value in hexadecimal.
* OpenSSL has verified the certificate.  If this module still cannot read it, it has no name.

Sources: RFC 2253 and RFC 4514 (strings), RFC 5280, section 4.1 (fields), X.690 (DER);
``X509_NAME_print_ex(3)``, ``XN_FLAG_RFC2253``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_LONG_FORM, _MOST_LENGTH_BYTES = 0x80, 4
_CONTINUES = 0x80
# The encodings of a name's text types (X.690, section 8.23); UTF-8 needs no decoding.
_UTF8 = 12
_ENCODINGS = {
    18: "latin-1",
    19: "latin-1",
    20: "latin-1",
    22: "latin-1",
    23: "latin-1",
    24: "latin-1",
    26: "latin-1",
    28: "utf-32-be",
    30: "utf-16-be",
}
_SPECIAL = frozenset(b',+"\\<>;')
_PRINTABLE = range(0x20, 0x7F)
# OpenSSL's short names of the attributes that certificates have.
_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.4": "SN",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "street",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.12": "title",
    "2.5.4.13": "description",
    "2.5.4.15": "businessCategory",
    "2.5.4.16": "postalAddress",
    "2.5.4.17": "postalCode",
    "2.5.4.20": "telephoneNumber",
    "2.5.4.41": "name",
    "2.5.4.42": "GN",
    "2.5.4.43": "initials",
    "2.5.4.44": "generationQualifier",
    "2.5.4.45": "x500UniqueIdentifier",
    "2.5.4.46": "dnQualifier",
    "2.5.4.65": "pseudonym",
    "2.5.4.97": "organizationIdentifier",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "1.2.840.113549.1.9.1": "emailAddress",
    "1.2.840.113549.1.9.2": "unstructuredName",
    "1.2.643.3.131.1.1": "INN",
    "1.2.643.100.1": "OGRN",
    "1.2.643.100.3": "SNILS",
    "1.3.6.1.4.1.311.60.2.1.1": "jurisdictionL",
    "1.3.6.1.4.1.311.60.2.1.2": "jurisdictionST",
    "1.3.6.1.4.1.311.60.2.1.3": "jurisdictionC",
}


class _Value(NamedTuple):
    """One value in DER.

    :param whole: its bytes with tag and length.
    """

    tag: int
    content: bytes
    whole: bytes

    def inside(self, tag: int) -> list[_Value]:
        """Return the values inside this value, which must have this tag."""
        return list(_values(self.expect(tag)))

    def expect(self, tag: int) -> bytes:
        """Return the content of this value, which must have this tag."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where the certificate should have {tag:#x}")
        return self.content


def subject(certificate: bytes) -> str:
    """Return the subject of a certificate.

    :param certificate: in DER, verified.
    :returns: empty for a subject without attributes.
    :raises ValueError: if the certificate cannot be read.
    """
    try:
        return ",".join(_relative(part) for part in reversed(_parts(certificate)))
    except IndexError:
        raise ValueError("the certificate ends too early") from None


def attributes(certificate: bytes) -> list[tuple[str, str]]:
    """Return the name and the text of each attribute of the subject that has both.

    :param certificate: in DER.
    :raises ValueError: if the certificate cannot be read.
    """
    try:
        return list(_named(_parts(certificate)))
    except IndexError:
        raise ValueError("the certificate ends too early") from None


def signature_algorithm(certificate: bytes) -> str:
    """Return the object identifier, with dots, of the algorithm that signed a certificate.

    :param certificate: in DER.
    :raises ValueError: if the certificate cannot be read.
    """
    try:
        [whole] = _values(certificate)
        return _number(whole.inside(_SEQUENCE)[1].inside(_SEQUENCE)[0].expect(_OID))
    except IndexError:
        raise ValueError("the certificate ends too early") from None


def _named(parts: Iterable[_Value]) -> Iterator[tuple[str, str]]:
    for kind, value in (each.inside(_SEQUENCE) for part in parts for each in part.inside(_SET)):
        name = _NAMES.get(_number(kind.expect(_OID)))
        if name is not None and (value.tag == _UTF8 or value.tag in _ENCODINGS):
            yield name, value.content.decode(_ENCODINGS.get(value.tag, "utf-8"), "replace")


def _parts(certificate: bytes) -> list[_Value]:
    """Return the parts of the subject, the most significant first."""
    [whole] = _values(certificate)
    fields = whole.inside(_SEQUENCE)[0].inside(_SEQUENCE)
    return fields[5 if fields[0].tag == _VERSION else 4].inside(_SEQUENCE)


def _relative(part: _Value) -> str:
    """Format one part of a name, of one or more attributes."""
    return "+".join(_attribute(each) for each in reversed(part.inside(_SET)))


def _attribute(attribute: _Value) -> str:
    kind, value = attribute.inside(_SEQUENCE)
    number = _number(kind.expect(_OID))
    name = _NAMES.get(number)
    if name is not None and value.tag == _UTF8:
        return f"{name}={_escaped(value.content)}"
    if name is not None and value.tag in _ENCODINGS:
        return f"{name}={_escaped(value.content.decode(_ENCODINGS[value.tag]).encode())}"
    return f"{name or number}=#{value.whole.hex().upper()}"


def _escaped(text: bytes) -> str:
    last = len(text) - 1
    return "".join(_character(value, first=at == 0, last=at == last) for at, value in enumerate(text))


def _character(value: int, *, first: bool, last: bool) -> str:
    if value not in _PRINTABLE:
        return f"\\{value:02X}"
    # OpenSSL escapes only a space at the end, so a # that is the whole value stays as it is.
    edge = chr(value) == " " if last else first and chr(value) in "# "
    return f"\\{chr(value)}" if edge or value in _SPECIAL else chr(value)


def _number(encoded: bytes) -> str:
    """Return an object identifier with dots (X.690, section 8.19)."""
    parts, value = list[int](), 0
    for byte in encoded:
        value = value << 7 | byte & ~_CONTINUES
        if not byte & _CONTINUES:
            parts.append(value)
            value = 0
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, (first, parts[0] - 40 * first, *parts[1:])))


def _values(data: bytes) -> Iterator[_Value]:
    """Yield the values that follow each other (X.690, section 8.1)."""
    position = 0
    while position < len(data):
        start, tag, length = position, data[position], data[position + 1]
        position += 2
        if length & _LONG_FORM:
            size = length & ~_LONG_FORM
            if not 0 < size <= _MOST_LENGTH_BYTES:
                raise ValueError(f"a length of {size} bytes in the certificate")
            length = int.from_bytes(data[position : position + size])
            position += size
        end = position + length
        if end > len(data):
            raise ValueError("a value of the certificate ends behind it")
        yield _Value(tag, data[position:end], data[start:end])
        position = end
