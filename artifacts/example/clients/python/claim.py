#!/usr/bin/env python3
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

"""Claims sandboxes, prints their names, and gives them back.

It needs the standard library alone, and kubectl to read a kubeconfig: the library has no
YAML. With the official client, the same calls are
CustomObjectsApi.create_namespaced_custom_object and watch.Watch().stream; set
_request_timeout on each of them.
"""

import argparse
import base64
import http.client
import json
import os
import random
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request


class Refused(Exception):
    """The server refused a request. The text is the message of its Status."""

    def __init__(self, error):
        text = error.read()
        try:
            status = json.loads(text)
            message = status["message"]
        except (ValueError, TypeError, KeyError):
            status, message = {}, text.decode(errors="replace").strip() or error.reason
        super().__init__(f"{error.code}: {message}")
        self.code = error.code
        self.causes = {cause.get("reason") for cause in (status.get("details") or {}).get("causes") or []}


class Shortage(Exception):
    """Too few sandboxes now, or too many claims wait. Nothing is stored."""


def sent(error):
    """Whether a request that failed may have reached the server."""
    reason = getattr(error, "reason", error)
    return not isinstance(reason, (socket.gaierror, ConnectionRefusedError, ssl.SSLError))


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
        try:
            with self.open(method, path, body) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(error) from error

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
        until, delay, maybe = time.monotonic() + retry_for, 0.1, False
        while True:
            try:
                claim = self.create(claim, key)
                break
            except Refused as error:
                if error.code not in (408, 429) and error.code < 500:
                    raise
                maybe = maybe or error.code != 429
                last = error
            except (OSError, http.client.HTTPException, ValueError) as error:  # no whole answer
                if isinstance(getattr(error, "reason", error), ssl.SSLError):
                    raise  # who cannot be trusted now cannot be trusted later
                maybe = maybe or sent(error)
                last = error
            if time.monotonic() > until:
                stored = "it may be stored" if maybe else "it is not stored"
                raise RuntimeError(f"gave up on claim {name}; {stored}: {last}") from last
            time.sleep(delay * random.uniform(1, 1.5))
            delay = min(2 * delay, 5)
        while claim["status"]["phase"] != "Completed":
            claim = self.watch(claim)
        return claim

    def create(self, claim, key):
        try:
            return self.call("POST", "?fieldValidation=Strict", claim)
        except Refused as error:
            if error.code == 429 and error.causes & {"SandboxShortage", "TooManyWaitingClaims"}:
                raise Shortage(str(error)) from error
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


def from_kubeconfig(path):
    """Returns server, namespace, SSL context and token of the current context of a kubeconfig."""
    command = [os.environ.get("KUBECTL", "kubectl"), "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
    if path:
        command += ["--kubeconfig", path]
    config = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    if "exec" in user or "auth-provider" in user:
        sys.exit("this example takes certificates and tokens, and runs no program for credentials")
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode() if authority else None)
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as file:  # ssl reads certificates from files only
            for part in ("client-certificate-data", "client-key-data"):
                file.write(base64.b64decode(user[part]) + b"\n")
            file.flush()
            context.load_cert_chain(file.name)
    namespace = config["contexts"][0]["context"].get("namespace", "default")
    return cluster["server"], namespace, context, user.get("token")


def from_flags(args):
    """Returns the same of the flags."""
    context = ssl.create_default_context(cafile=args.ca)
    if args.cert:
        context.load_cert_chain(args.cert, args.key)
    token = None
    if args.token_file:
        with open(args.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    return args.server, "default", context, token


def main():
    parser = argparse.ArgumentParser(description="Claim sandboxes and give them back.")
    parser.add_argument("--kubeconfig", help="file to take server and user from; default: that of kubectl")
    parser.add_argument("--server", help="URL of the API server, in place of a kubeconfig")
    parser.add_argument("--namespace")
    parser.add_argument("--ca", help="with --server: file with the certificate of the server's authority")
    parser.add_argument("--cert", help="with --server: file with the certificate of the client")
    parser.add_argument("--key", help="with --server: file with its key")
    parser.add_argument("--token-file", help="with --server: file with a token, instead of a certificate")
    parser.add_argument("--retry-for", type=float, default=60, help="seconds to repeat a request without a clear answer")
    parser.add_argument("pool", nargs="?", default="python")
    parser.add_argument("replicas", nargs="?", type=int, default=1)
    args = parser.parse_args()
    server, namespace, context, token = from_flags(args) if args.server else from_kubeconfig(args.kubeconfig)
    claims = Claims(server, args.namespace or namespace, context, token)
    try:
        return claim_once(claims, args)
    except Shortage as error:
        print(f"{error}; try again later", file=sys.stderr)
        return 75
    except (Refused, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def claim_once(claims, args):
    """Claims, prints what there is, gives it back, and returns the exit status."""
    spec = {"templateName": args.pool, "replicas": args.replicas, "onShortage": "Fail"}
    claim = claims.claim_and_wait(spec, args.retry_for)
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
