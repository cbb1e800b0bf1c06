// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
)

// claimedBy are the annotations that say who claimed, and when the claim was seen and
// ready. They are the server's own.
var claimedBy = []string{
	v1alpha1.AnnotationClaimedBy, v1alpha1.AnnotationClaimedByIdentity,
	v1alpha1.AgentAnnotationFirstObserved, v1alpha1.AgentAnnotationFirstReady,
}

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
	// names and UIDs of pods and nodes, and ids of credentials. Others come from the
	// authenticator of users, and may be secret; who reads a claim reads what is
	// recorded.
	publicExtra = "authentication.kubernetes.io/"
)

// identityRecord is what the annotation claimed-by-identity holds. The claim's UID is the hash of
// it, and the server alone writes UIDs, once. So nothing that is written into the
// annotation later is taken for what this server recorded: also not on a claim that was
// changed through a server of a version that lets clients write there.
type identityRecord struct {
	// Salt makes the UID that of one claim. User is a UserInfo of authentication.k8s.io/v1.
	Salt uuid.UUID       `json:"salt"`
	User json.RawMessage `json:"user"`
}

// ownKind is the version of UUIDs that RFC 9562 leaves to their makers.
const ownKind = 8

// timeBytes is how much of the UID of a claim is the time of its creation, in
// milliseconds, as in the UUIDs of version 7.
const timeBytes = 6

// withTime returns a UID that begins with the time. Claims of one second are served in the order of
// their UIDs, since objects keep no more of the time of their creation.
func withTime(uid types.UID, now time.Time) types.UID {
	id, err := uuid.Parse(string(uid))
	if err != nil {
		return uid
	}
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(now.UnixMilli()))
	copy(id[:timeBytes], at[len(at)-timeBytes:])
	id[timeBytes] = id[timeBytes]&0x0f | ownKind<<4
	return types.UID(id.String())
}

// uid is the UID of a claim with this record: the time that the salt begins with, and the
// hash.
func (r *identityRecord) uid() types.UID {
	id := uuid.NewHash(sha256.New(), r.Salt, r.User, ownKind)
	copy(id[:timeBytes], r.Salt[:timeBytes])
	return types.UID(id.String())
}

// unrecorded is the record of a user who cannot be recorded in full. The claim still counts for
// its creator (plan.Claimer): the annotation is removed when another user changes the spec.
const unrecorded = "{}"

// recordIdentity returns the record of the user who makes a claim that is about to be stored, and
// sets the UID of the claim to that of the record. If it cannot record all of the user, it returns
// unrecorded and leaves the claim as it is.
func recordIdentity(claim *v1alpha1.SandboxClaim, who user.Info) string {
	info := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if !strings.HasPrefix(key, publicExtra) && key != v1alpha1.AnnotationE2BKeyID {
			return unrecorded
		}
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	encoded, err := json.Marshal(&info)
	if err != nil || len(encoded) > maxIdentityBytes {
		return unrecorded
	}
	r := identityRecord{User: encoded}
	if r.Salt, err = uuid.Parse(string(claim.UID)); err != nil {
		return unrecorded
	}
	all, err := json.Marshal(&r)
	if err != nil {
		return unrecorded
	}
	claim.UID = r.uid()
	return string(all)
}

// IdentityOf returns the user who made a claim that is not Completed, with all groups and
// extra fields of that time. It fails with allocator.ErrIdentityUnknown if they are not
// recorded: there are too many groups, or extra fields other than Kubernetes' own and the E2B key id, the
// claim was made by a version that did not record them, or another user has changed
// its spec.
func IdentityOf(claim *v1alpha1.SandboxClaim) (user.Info, error) {
	var r identityRecord
	if err := json.Unmarshal([]byte(claim.Annotations[v1alpha1.AnnotationClaimedByIdentity]), &r); err != nil || r.uid() != claim.UID {
		return nil, allocator.ErrIdentityUnknown
	}
	var info authenticationv1.UserInfo
	if err := json.Unmarshal(r.User, &info); err != nil {
		return nil, allocator.ErrIdentityUnknown
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
