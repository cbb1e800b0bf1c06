// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// sealVersion begins what is sealed, for the day on which it is done otherwise. It is no
// version of the key.
const sealVersion = "v1:"

// Request is what of a claim goes to the agent-runtime of each of its sandboxes, so that
// it can be done again where a sandbox gets another pod.
type Request struct {
	// EnvVars are the claim's.
	EnvVars map[string]string `json:"envVars,omitempty"`
	// DynamicVolumesMount are the claim's.
	DynamicVolumesMount []v1alpha1.CSIMountConfig `json:"dynamicVolumesMount,omitempty"`
}

// RequestOf returns the request of a claim.
func RequestOf(claim *v1alpha1.SandboxClaim) Request {
	return Request{EnvVars: claim.Spec.EnvVars, DynamicVolumesMount: claim.Spec.DynamicVolumesMount}
}

// Seal returns the request of a claim in a form that only the servers of the store can
// read, for this claim only, and the version of the key with which they can. It stands on
// sandboxes, which others may read than those who may read the claim.
func (k *Keyring) Seal(claim *v1alpha1.SandboxClaim) (sealed, version string, err error) {
	newest := k.newest()
	sealed, err = newest.seal(claim)
	return sealed, strconv.Itoa(newest.version), err
}

func (k *keys) seal(claim *v1alpha1.SandboxClaim) (string, error) {
	plain, err := json.Marshal(RequestOf(claim))
	if err != nil {
		return "", fmt.Errorf("encoding what claim %s asks of agent-runtimes: %w", claim.Name, err)
	}
	aead, err := k.aead(claim.Namespace, claim.UID)
	if err != nil {
		return "", err
	}
	sealed := aead.Seal(nil, nil, plain, []byte(whose(claim.Namespace, claim.UID)))
	return sealVersion + base64.StdEncoding.EncodeToString(sealed), nil
}

// Open returns the request that was sealed for the claim of a UID, and stands on a sandbox.
func (k *Keyring) Open(ctx context.Context, claim types.UID, sb *v1alpha1.Sandbox) (Request, error) {
	version, err := k.of(ctx, sb)
	if err != nil {
		return Request{}, err
	}
	return version.open(sb.Namespace, claim, sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest])
}

func (k *keys) open(namespace string, claim types.UID, sealed string) (Request, error) {
	encoded, ok := strings.CutPrefix(sealed, sealVersion)
	if !ok {
		return Request{}, errSeal
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Request{}, errSeal
	}
	aead, err := k.aead(namespace, claim)
	if err != nil {
		return Request{}, err
	}
	plain, err := aead.Open(nil, nil, raw, []byte(whose(namespace, claim)))
	if err != nil {
		return Request{}, errSeal
	}
	var request Request
	if err := json.Unmarshal(plain, &request); err != nil {
		return Request{}, errSeal
	}
	return request, nil
}

// aead seals with a key of the claim's own, so that random nonces do for any number of
// claims.
func (k *keys) aead(namespace string, claim types.UID) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, k.seals, whose(namespace, claim), keyBytes)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// whose names a claim. A namespace has no slash.
func whose(namespace string, claim types.UID) string { return namespace + "/" + string(claim) }
