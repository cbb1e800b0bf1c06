// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storecheck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/store/format"
	"github.com/sandlot-io/sandlot/pkg/storecheck/invariants"
)

// resources are those whose objects are stored.
var resources = sets.New(storekeys.Resources()...)

// reader takes in what is stored.
type reader struct {
	report       *Report
	now          time.Time
	codec        runtime.Codec
	transformers value.ResourceTransformers
	state        invariants.State
	// told is how many findings of each level the report has.
	told map[findings.Level]int
	// unread is what cannot be decrypted, by resource.
	unread map[string]*unread
}

// unread is what of a resource cannot be decrypted.
type unread struct {
	values int
	first  string
	why    error
}

func newReader(o Options) *reader {
	return &reader{
		report: &Report{Objects: map[string]int{}, Findings: []findings.Finding{}},
		now:    o.Now, codec: apiserver.NewStorageCodec(), transformers: o.Transformers,
		told: map[findings.Level]int{}, unread: map[string]*unread{},
	}
}

// read takes in one key and its value. begin is how all keys begin.
func (r *reader) read(ctx context.Context, begin string, pair *mvccpb.KeyValue) {
	r.report.Keys++
	key := string(pair.Key)
	parts := strings.Split(strings.TrimPrefix(key, begin), "/")
	switch {
	case parts[0] == v1alpha1.GroupName && len(parts) == 4 && resources.Has(parts[1]):
		r.object(ctx, key, parts[1], parts[2], parts[3], pair.Value)
	case parts[0] == storekeys.RuntimeKey && len(parts) == 1:
		r.runtimeKey(ctx, key, pair.Value)
	case (parts[0] == storekeys.Encryption || parts[0] == format.Name) && len(parts) == 1: // no objects, and nothing secret
	case parts[0] == storekeys.Servers && len(parts) == 2, parts[0] == storekeys.Guards && len(parts) == 3:
		if pair.Lease == 0 {
			r.found(findings.Finding{
				Level: findings.Warning, Check: "KeyWithoutLease", Objects: []string{key},
				Message: key + " has no lease, so it stays when its server is gone", Action: "delete the key, if no API server of that name runs",
			})
		}
	default:
		r.found(findings.Finding{
			Level: findings.Warning, Check: "UnknownKey", Objects: []string{key},
			Message: key + " is no key of this version",
			Action:  "see which program writes it: a newer version of Sandlot, or another that should have a prefix of its own",
		})
	}
}

// object takes in an object.
func (r *reader) object(ctx context.Context, key, resource, namespace, name string, stored []byte) {
	plain, ok := r.decrypt(ctx, key, resource, stored)
	if !ok {
		return
	}
	object, kind, err := r.codec.Decode(plain, nil, nil)
	if err != nil {
		r.breach("Undecodable", fmt.Sprintf("%s cannot be decoded, so lists of %s fail: %v", key, resource, err), key)
		return
	}
	if kind.GroupVersion() != v1alpha1.SchemeGroupVersion {
		r.breach("StoredVersion", fmt.Sprintf("%s is stored as %s, not as %s", key, kind.GroupVersion(), v1alpha1.SchemeGroupVersion), key)
	}
	is, its, add := r.known(object)
	if is != resource {
		r.breach("WrongKind", fmt.Sprintf("%s holds a %s", key, kind.Kind), key)
		return
	}
	if its.GetNamespace() != namespace || its.GetName() != name {
		r.breach("WrongName", fmt.Sprintf("%s holds %s %s/%s", key, kind.Kind, its.GetNamespace(), its.GetName()), key)
		return
	}
	if its.GetUID() == "" {
		r.breach("UniqueUID", key+" holds an object without a UID", key)
		return
	}
	r.report.Objects[resource]++
	add()
}

// known returns the resource of an object, its metadata, and what adds it to the state. The
// resource of what is none of ours is empty.
func (r *reader) known(object runtime.Object) (resource string, its metav1.Object, add func()) {
	switch object := object.(type) {
	case *v1alpha1.SandboxClaim:
		return "sandboxclaims", object, func() { r.state.AddClaim(object) }
	case *v1alpha1.Sandbox:
		return "sandboxes", object, func() { r.state.AddSandbox(object) }
	case *v1alpha1.SandboxSet:
		return "sandboxsets", object, func() { r.state.AddSet(object) }
	case *v1alpha1.SandboxTemplate:
		return "sandboxtemplates", object, func() { r.state.AddTemplate(object) }
	}
	return "", nil, nil
}

// runtimeKey takes in the key of agent-runtimes.
func (r *reader) runtimeKey(ctx context.Context, key string, stored []byte) {
	plain, ok := r.decrypt(ctx, key, storekeys.RuntimeKeyResource, stored)
	if !ok {
		return
	}
	if _, err := agentruntime.NewKeyring(plain); err != nil {
		r.breach("RuntimeKey", fmt.Sprintf("%s is no key, so no API server starts: %v", key, err), key)
	}
}

// decrypt returns a value in plain text, or notes that it cannot be read.
func (r *reader) decrypt(ctx context.Context, key, resource string, stored []byte) (plain []byte, ok bool) {
	transformer := identity.NewEncryptCheckTransformer()
	if r.transformers != nil {
		transformer = r.transformers.TransformerForResource(v1alpha1.Resource(resource))
	}
	// The key is authenticated with the value: see etcdtxn.Resource.
	plain, _, err := transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		if r.unread[resource] == nil {
			r.unread[resource] = &unread{first: key, why: err}
		}
		r.unread[resource].values++
		return nil, false
	}
	return plain, true
}

// tellUnread reports what cannot be read, once for each resource.
func (r *reader) tellUnread() {
	for _, resource := range slices.Sorted(maps.Keys(r.unread)) {
		u := r.unread[resource]
		action := "give --encryption-provider-config, with the file that the API server has"
		if r.transformers != nil {
			action = "the file of --encryption-provider-config must have the keys that these values were written with: take that of the API server, or of when the backup was made"
		}
		r.found(findings.Finding{
			Level: findings.NotLookedAt, Check: "Unreadable", Objects: []string{u.first},
			Message: fmt.Sprintf("%d values of %s cannot be read, the first at %s: %v", u.values, resource, u.first, u.why), Action: action,
		})
	}
}

func (r *reader) breach(check, message, key string) {
	r.found(findings.Finding{
		Level: findings.Error, Check: check, Objects: []string{key}, Message: message,
		Action: "restore the store from a backup of before, or delete the key while no API server runs; and report it as a bug, with this output",
	})
}
