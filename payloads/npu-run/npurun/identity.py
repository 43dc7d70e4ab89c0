"""Who a part's programs are to the others of the cluster: certificates from one folder, or plaintext, by name."""

import os

import grpc

from npuforge import channels, security

FOLDER = "/etc/boardbench/npu"


def transport(options, name):
    """The keys of a `[transport]` table for the program of this name; its files lie in `options.certificates`."""
    if options.plaintext:
        return {"security": security.PLAINTEXT}
    place = os.path.abspath(options.certificates)
    return {
        "security": security.TLS,
        "ca_file": os.path.join(place, "ca.pem"),
        "certificate_file": os.path.join(place, f"{name}.pem"),
        "key_file": os.path.join(place, f"{name}-key.pem"),
        "token_file": os.path.join(place, "token"),
    }


def check(options, *names):
    """SecurityError unless all that these programs need is there, before the first of them is started."""
    for name in names:
        try:
            security.load_security(transport(options, name))
        except security.SecurityError as error:
            raise security.SecurityError(f"{error} (./inv provision --tags npu puts the certificates there)") from None


def load_words(options):
    """The same for the load generator's command line, which takes no token."""
    table = transport(options, security.CLIENT_NAME)
    if options.plaintext:
        return ["--plaintext"]
    names = ("ca_file", "certificate_file", "key_file")
    return [word for name in names for word in (f"--{name.replace('_', '-')}", table[name])]


def channel(options, address, name):
    """A channel to the program `name` at `address`, as that program itself. SecurityError."""
    credentials = security.channel_credentials(security.load_security(transport(options, name)))
    if credentials is None:
        return grpc.insecure_channel(address, options=channels.client_options())
    return grpc.secure_channel(address, credentials, options=channels.client_options(name))
