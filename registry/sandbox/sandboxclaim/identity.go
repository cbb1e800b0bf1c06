// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claimedBy are the annotations that say who claimed. They are the server's own.
var claimedBy = []string{v1alpha1.AnnotationClaimedBy, v1alpha1.AnnotationClaimedByIdentity}

// setClaimedBy makes the annotations the server's own: others may rely on them to
// say who holds a sandbox, so whatever a client sends under their keys is dropped
// without a word, as with every field that is not the client's.
func setClaimedBy(claim *v1alpha1.SandboxClaim, who map[string]string) {
	for _, key := range claimedBy {
		if who[key] == "" {
			delete(claim.Annotations, key)
			continue
		}
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[key] = who[key]
	}
}

const (
	// maxIdentityBytes bounds what is recorded of a user in each claim.
	maxIdentityBytes = 8 << 10
	// publicExtra is the prefix of the extra fields that Kubernetes itself adds to users:
	// names and UIDs of pods and nodes, and ids of credentials. Others come from whoever
	// authenticates users, and may be secret; who reads a claim reads what is recorded.
	publicExtra = "authentication.kubernetes.io/"
)

// ErrIdentityUnknown means that who made a claim is not recorded in full.
var ErrIdentityUnknown = errors.New("who made the claim is not recorded in full")

// encodeIdentity returns what is recorded of a user; "" if that cannot be all of it.
func encodeIdentity(who user.Info) string {
	info := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if !strings.HasPrefix(key, publicExtra) {
			return ""
		}
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	encoded, err := json.Marshal(&info)
	if err != nil || len(encoded) > maxIdentityBytes {
		return ""
	}
	return string(encoded)
}

// IdentityOf returns the user who made a claim that is not Completed, with all groups and
// extra fields of that time. It fails with ErrIdentityUnknown if they are not recorded:
// there are too many groups, or extra fields that are not Kubernetes' own, or the claim
// was made by a version that did not record them.
func IdentityOf(claim *v1alpha1.SandboxClaim) (user.Info, error) {
	recorded := claim.Annotations[v1alpha1.AnnotationClaimedByIdentity]
	if recorded == "" {
		return nil, ErrIdentityUnknown
	}
	var info authenticationv1.UserInfo
	if err := json.Unmarshal([]byte(recorded), &info); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIdentityUnknown, err)
	}
	who := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups}
	for key, values := range info.Extra {
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[key] = values
	}
	return who, nil
}
