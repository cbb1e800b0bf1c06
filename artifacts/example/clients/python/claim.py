#!/usr/bin/env python3
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

"""Claims sandboxes, prints their names, and gives them back.

It needs the standard library alone. With the official client, the same calls are
CustomObjectsApi.create_namespaced_custom_object and watch.Watch().stream; set
_request_timeout on each of them.
"""

import argparse
import http.client
import json
import random
import secrets
import ssl
import sys
import time
import urllib.error
import urllib.request


class Shortage(Exception):
    """Too few sandboxes now, or too many claims wait. Nothing is stored."""

    def __init__(self, message, retry_after):
        super().__init__(message)
        self.retry_after = retry_after


class Claims:
    """The claims of a namespace."""

    def __init__(self, server, namespace, context, token=None):
        self.url = f"{server}/apis/agents.kruise.io/v1alpha1/namespaces/{namespace}/sandboxclaims"
        self.context, self.token = context, token

    def open(self, method, path="", body=None):
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Accept", "application/json")
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        # kube-apiserver ends every request after 60 s.
        return urllib.request.urlopen(request, timeout=65, context=self.context)

    def call(self, method, path="", body=None):
        with self.open(method, path, body) as answer:
            return json.load(answer)

    def claim_and_wait(self, spec, retry_for=60):
        """Returns the claim when it is Completed. It may have less than it asked for."""
        # One name for all tries, so that at most one of them binds.
        key = secrets.token_hex(16)
        name = "run-" + key[:16]
        claim = {
            "apiVersion": "agents.kruise.io/v1alpha1",
            "kind": "SandboxClaim",
            "metadata": {"name": name, "annotations": {"client.sandlot.io/key": key}},
            "spec": spec,
        }
        until, delay = time.monotonic() + retry_for, 0.1
        while True:
            try:
                claim = self.create(claim, key)
                break
            except urllib.error.HTTPError as error:
                if error.code not in (408, 429) and error.code < 500:
                    raise
                last = error
            except (OSError, http.client.HTTPException, ValueError) as error:  # no whole answer: it is not known whether it is stored
                last = error
            if time.monotonic() > until:
                raise RuntimeError(f"gave up on claim {name}; it may be stored") from last
            time.sleep(delay * random.uniform(1, 1.5))
            delay = min(2 * delay, 5)
        while claim["status"]["phase"] != "Completed":
            claim = self.watch(claim)
        return claim

    def create(self, claim, key):
        try:
            return self.call("POST", body=claim)
        except urllib.error.HTTPError as error:
            status = json.loads(error.read() or b"{}") if error.code in (409, 429) else {}
            details = status.get("details") or {}
            causes = {cause.get("reason") for cause in details.get("causes") or []}
            if error.code == 429 and causes & {"SandboxShortage", "TooManyWaitingClaims"}:
                raise Shortage(status["message"], details.get("retryAfterSeconds", 1)) from error
            if error.code == 409:  # a try before has come through, if it has our key
                there = self.call("GET", "/" + claim["metadata"]["name"])
                if there["metadata"].get("annotations", {}).get("client.sandlot.io/key") == key:
                    return there
            raise

    def watch(self, claim):
        """Returns the claim when it is Completed, or after a minute."""
        name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
        try:
            with self.open("GET", f"?watch=true&timeoutSeconds=60&fieldSelector=metadata.name={name}") as events:
                for line in events:
                    seen = json.loads(line)["object"]
                    if seen.get("metadata", {}).get("uid") == uid and seen.get("status", {}).get("phase") == "Completed":
                        return seen
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(1)
        seen = self.call("GET", "/" + name)
        if seen["metadata"]["uid"] != uid:  # deleted, and made again by another
            raise RuntimeError(f"claim {name} was deleted while it was waited for")
        return seen

    def give_back(self, claim):
        name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
        while self.call("POST", f"/{name}/release", {"spec": {"claimUID": uid}})["status"]["remaining"]:
            pass
        self.call("DELETE", "/" + name, {"preconditions": {"uid": uid}})


def main():
    parser = argparse.ArgumentParser(description="Claim sandboxes and give them back.")
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--ca", help="file with the certificate of the server's authority")
    parser.add_argument("--cert", help="file with the certificate of the client")
    parser.add_argument("--key", help="file with its key")
    parser.add_argument("--token-file", help="file with a token, instead of a certificate")
    parser.add_argument("pool", nargs="?", default="python")
    parser.add_argument("replicas", nargs="?", type=int, default=1)
    args = parser.parse_args()
    context = ssl.create_default_context(cafile=args.ca)
    if args.cert:
        context.load_cert_chain(args.cert, args.key)
    token = None
    if args.token_file:
        with open(args.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    claims = Claims(args.server, args.namespace, context, token)
    try:
        claim = claims.claim_and_wait({"templateName": args.pool, "replicas": args.replicas, "onShortage": "Fail"})
    except Shortage as error:
        print(f"{error}; come again in {error.retry_after} s", file=sys.stderr)
        return 75
    # Completed is not success.
    status = claim["status"]
    for sandbox in status.get("sandboxes", []):
        print(sandbox["name"])
    claims.give_back(claim)
    if status.get("claimedReplicas", 0) < args.replicas:
        print(status["message"], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
