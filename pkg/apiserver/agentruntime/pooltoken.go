// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The agent-runtime of a pool has its token before it is known which claim gets it, and keeps
// it: /init can be called again only with this token, and does not change it. So the token is
// derived from an id that is different for each pod that the sandbox had in pools.

// poolTokens ends the names of the servers that know these tokens.
const poolTokens = ".pool-tokens"

// ServerName returns the name under which a server that knows the tokens of agent-runtimes in
// pools joins the others. id is different for each server.
func ServerName(id string) string { return id + poolTokens }

// KnowsPoolTokens reports whether a server, by its name, knows the tokens of agent-runtimes in
// pools. One that does not would set another token for a claim, which the runtime refuses, and
// sets none in a pool.
func KnowsPoolTokens(server string) bool { return strings.HasSuffix(server, poolTokens) }

// usesPoolToken reports whether the agent-runtime of a sandbox has a token from its pool, or is to
// get one there.
func usesPoolToken(sb *v1alpha1.Sandbox) bool {
	return v1alpha1.IsInPool(sb) || sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != ""
}

// tokenID is what AnnotationRuntimeTokenID says.
type tokenID struct {
	// version is that of the key.
	version int
	// pod is different for each pod that the sandbox had in pools.
	pod string
}

// podID returns an id that is different for each pod that a sandbox had in pools. The
// count of how often it was recycled is for simulated pods, which all have the same UID.
func podID(sb *v1alpha1.Sandbox) string {
	return fmt.Sprintf("%s.%d", sb.Status.PodInfo.PodUID, sb.Status.RecycledCount)
}

func (i tokenID) String() string { return strconv.Itoa(i.version) + "/" + i.pod }

// tokenIDOf returns the id of the token that the agent-runtime of a sandbox has from its pool, and
// reports whether it has one. An id that cannot be read has the version unreadable.
func tokenIDOf(sb *v1alpha1.Sandbox) (tokenID, bool) {
	text := sb.Annotations[v1alpha1.AnnotationRuntimeTokenID]
	if text == "" {
		return tokenID{}, false
	}
	number, pod, _ := strings.Cut(text, "/")
	version, err := strconv.Atoi(number)
	if err != nil || version < 1 || pod == "" {
		return tokenID{version: unreadable}, true
	}
	return tokenID{version, pod}, true
}

// newTokenID returns the id of the token for the agent-runtime of a sandbox in its pool. A pod
// that has a token keeps it, also when there is a newer version of the key.
func (k *Keyring) newTokenID(sb *v1alpha1.Sandbox) tokenID {
	pod := podID(sb)
	if had, ok := tokenIDOf(sb); ok && had.pod == pod {
		return had
	}
	return tokenID{k.newest().version, pod}
}

// poolToken returns the token of an id, for a sandbox.
func (k *Keyring) poolToken(ctx context.Context, sb *v1alpha1.Sandbox, id tokenID) (string, error) {
	version, err := k.read(ctx, sb, id.version, v1alpha1.AnnotationRuntimeTokenID)
	if err != nil {
		return "", err
	}
	return version.derivePoolToken(sb.UID, id.pod), nil
}

// derivePoolToken derives the token of a pod of a sandbox.
func (k *keys) derivePoolToken(sandbox types.UID, pod string) string {
	mac := hmac.New(sha256.New, k.tokens)
	// No token of a claim is made from what begins with a letter.
	fmt.Fprintf(mac, "pool %d:%s%d:%s", len(sandbox), sandbox, len(pod), pod)
	return asUUID(mac.Sum(nil))
}

// addPoolToken takes in the version of the token that a sandbox has from its pool.
func (u *Use) addPoolToken(sb *v1alpha1.Sandbox) {
	if id, ok := tokenIDOf(sb); ok {
		u.insert(id.version)
	}
}
