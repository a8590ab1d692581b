"""Patterns of the formats that are enforced; other formats are annotations, as the specification has them."""

from typing import Final

# Python knows no year 0, so a date in it could be written but not read.
_YEAR = r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})"
_DATE = (
    rf"(?:{_YEAR}-(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|{_YEAR}-(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|{_YEAR}-02-(?:0[1-9]|1\d|2[0-8])"
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
_TIME = rf"{_CLOCK}(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(
    (
        rf"(?:{_H16}:){{6}}{_LS32}",
        rf"::(?:{_H16}:){{5}}{_LS32}",
        rf"(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}",
        rf"(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}",
        rf"(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}",
        rf"(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}",
        rf"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}",
        rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        rf"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    )
)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_PCT = r"%[0-9A-Fa-f]{2}"
_PCHAR = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_PCT})"
_AUTHORITY = (
    rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_PCT})*@)?"
    rf"(?:\[(?:{_IPV6}|v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_PCT})*)(?::\d*)?"
)
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_PATH_ABEMPTY = rf"(?:/{_PCHAR}*)*"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}{_PATH_ABEMPTY}|/(?:{_PCHAR}+{_PATH_ABEMPTY})?|{_PCHAR}+{_PATH_ABEMPTY}|){_TAIL}"
_NO_COLON = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_PCT})"
_RELATIVE = (
    rf"(?://{_AUTHORITY}{_PATH_ABEMPTY}|/(?:{_PCHAR}+{_PATH_ABEMPTY})?|{_NO_COLON}+{_PATH_ABEMPTY}|){_TAIL}"
)
# Few enough digits for a span that Python can hold: under a thousand million days in all.
_SECONDS = r"\d{1,8}(?:\.\d{1,9})?S"
_DURATION_TIME = rf"T(?:\d{{1,5}}H(?:\d{{1,6}}M(?:{_SECONDS})?)?|\d{{1,6}}M(?:{_SECONDS})?|{_SECONDS})"
_DURATION_DATE = r"(?:\d{1,5}Y(?:\d{1,6}M(?:\d{1,8}D)?)?|\d{1,6}M(?:\d{1,8}D)?|\d{1,8}D)"
# Hosts of which every URL parser thinks alike: no addresses, no encoded names, a last label that is a name.
_NAME = r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_LAST_NAME = r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*"
_HOST = rf"(?:{_NAME}\.)*{_LAST_NAME}"
_PORT = r"(?::(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}))?"
_RESERVED = "arpa|invalid|local|localhost|onion|test"
_HEX3, _HEX4 = "[0-9a-fA-F]{3}", "[0-9a-fA-F]{4}"

FORMATS: Final[dict[str, str]] = {
    "date": rf"^{_DATE}$",
    "time": rf"^{_TIME}$",
    "date-time": rf"^{_DATE}[Tt]{_TIME}$",
    "duration": rf"^P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|\d{{1,7}}W)$",
    "email": rf"^{_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}(?:\.{_LABEL})*|\[{_IPV4}\])$",
    "hostname": rf"^{_LABEL}(?:\.{_LABEL})*$",
    "ipv4": rf"^{_IPV4}$",
    "ipv6": rf"^(?:{_IPV6})$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "uri": rf"^(?:{_URI})$",
    "uri-reference": rf"^(?:{_URI}|{_RELATIVE})$",
    "local-date-time": rf"^{_DATE}[Tt]{_CLOCK}$",
    "local-time": rf"^{_CLOCK}$",
    "email-address": (
        rf"^(?=[^@]{{1,64}}@)(?!.*\.(?i:{_RESERVED})$){_ATOM}(?:\.{_ATOM})*@(?:{_NAME}\.)+[A-Za-z]{{2,24}}$"
    ),
    "ipvanyaddress": rf"^(?:{_IPV4}|{_IPV6})$",
    "ipv4interface": rf"^{_IPV4}/(?:\d|[12]\d|3[0-2])$",
    "url": rf"^[A-Za-z][A-Za-z0-9+.-]*://{_HOST}{_PORT}{_PATH_ABEMPTY}{_TAIL}$",
    **{
        f"uuid{version}": rf"^{_HEX4 * 2}-{_HEX4}-{version}{_HEX3}-[89abAB]{_HEX3}-{_HEX4 * 3}$"
        for version in range(1, 9)
    },
    "json-pointer": r"^(?:/(?:[^~/]|~[01])*)*$",
    "relative-json-pointer": r"^(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)$",
}
"""Format to ECMA-262 pattern. Dates know the days of each month and leap years; times have no leap second.

Besides those of the specification, those of Python types: `local-...` have no time zone, `email-address` and
`url` are narrower than `email` and `uri`: what mail and URL libraries all take.
"""

LONGEST: Final[dict[str, int]] = {"hostname": 253, "email-address": 254}
"""Length bounds that a format sets besides, in code points."""
