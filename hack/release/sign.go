// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	sigoptions "github.com/sigstore/sigstore/pkg/signature/options"
)

// signatureFile is the signature of the checksums, as "cosign sign-blob" writes it.
const signatureFile = checksumsFile + ".sig"

// loadKey returns the signer of a private key in PEM, which may be encrypted.
func loadKey(file string) (signature.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(text, cryptoutils.StaticPasswordFunc([]byte(os.Getenv("COSIGN_PASSWORD"))))
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	signer, err := signature.LoadDefaultSigner(key)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	return signer, nil
}

// sign signs the checksums, and with them everything.
func sign(ctx context.Context, o *options) error {
	if o.signer == nil {
		return nil
	}
	text, err := os.ReadFile(o.file(checksumsFile))
	if err != nil {
		return err
	}
	signed, err := o.signer.SignMessage(bytes.NewReader(text), sigoptions.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	return os.WriteFile(o.file(signatureFile), []byte(base64.StdEncoding.EncodeToString(signed)), 0o644)
}

// runVerify checks a folder of a release against a public key.
func runVerify(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("release verify", flag.ContinueOnError)
	key := fs.String("key", "", "File of the public key (PEM).")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 1 || *key == "" {
		return fmt.Errorf("usage: release verify -key FILE FOLDER")
	}
	dir := fs.Arg(0)
	if err := verify(ctx, dir, *key); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	_, err := fmt.Fprintf(stdout, "%s is as it was signed\n", dir)
	return err
}

// verify checks the signature of the checksums, and every file against these.
func verify(ctx context.Context, dir, key string) error {
	text, err := os.ReadFile(key)
	if err != nil {
		return err
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(text)
	if err != nil {
		return fmt.Errorf("-key: %w", err)
	}
	verifier, err := signature.LoadDefaultVerifier(public)
	if err != nil {
		return fmt.Errorf("-key: %w", err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, checksumsFile))
	if err != nil {
		return err
	}
	encoded, err := os.ReadFile(filepath.Join(dir, signatureFile))
	if err != nil {
		return err
	}
	signed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	if err != nil {
		return fmt.Errorf("%s: %w", signatureFile, err)
	}
	if err := verifier.VerifySignature(bytes.NewReader(signed), bytes.NewReader(sums), sigoptions.WithContext(ctx)); err != nil {
		return fmt.Errorf("%s is not that of %s: %w", signatureFile, checksumsFile, err)
	}
	found, err := checksums(dir)
	if err != nil {
		return err
	}
	if found != string(sums) {
		return fmt.Errorf("its files are not those of %s", checksumsFile)
	}
	return nil
}
