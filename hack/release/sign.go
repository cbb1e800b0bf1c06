// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"

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
