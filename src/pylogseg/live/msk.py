"""The login of Amazon MSK by IAM: OAUTHBEARER with a token that AWS's own signer makes of the user's credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from pylogseg.errors import RequestError, install_text

#: What Kafka's clients call it; on the wire it is OAUTHBEARER.
MSK_IAM = "AWS_MSK_IAM"
_HOST = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?$")


class MskSigner(NamedTuple):
    """Makes tokens of the credentials in the environment, of a profile, or of a role."""

    region: str
    profile: str = ""
    role: str = ""

    def __call__(self) -> str:
        """Return a new token, which is good for 15 minutes; nobody is asked, but for a role."""
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        except ImportError as error:
            raise RequestError(f"{MSK_IAM} needs AWS's signer ({error}): {install_text('msk')}") from error
        try:
            if self.role:
                token, _ = MSKAuthTokenProvider.generate_auth_token_from_role_arn(self.region, self.role)
            elif self.profile:
                token, _ = MSKAuthTokenProvider.generate_auth_token_from_profile(self.region, self.profile)
            else:
                token, _ = MSKAuthTokenProvider.generate_auth_token(self.region)
        except Exception as error:  # of botocore and of the signer, which have no base of their own
            raise RequestError(f"{MSK_IAM}: no token for region {self.region}: {error}") from error
        return str(token)


def signer_of(values: Mapping[str, str], jaas: Mapping[str, str], hosts: list[str], where: str) -> MskSigner:
    """Return a signer for properties; the region is a property, a variable of the environment, or in a host's name."""
    named = (match[1] for match in map(_HOST.search, hosts) if match)
    region = values.get("aws.region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = region or next(named, "")
    if not region:
        raise RequestError(f"{where}: {MSK_IAM} needs a region: aws.region in the properties, or AWS_REGION")
    return MskSigner(region, jaas.get("awsProfileName", ""), jaas.get("awsRoleArn", ""))
