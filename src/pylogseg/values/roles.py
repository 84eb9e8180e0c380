"""The role of values, in the metadata of an Arrow field."""

#: In the metadata of a field: ``union`` of a struct of which one member has a value, ``raw`` of the bytes of what is
#: nested too deeply, ``json`` of JSON as it stands.
ROLE_KEY = b"pylogseg.role"
