// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

const (
	// volumeTTL is how long a volume that was found is believed to be as it was: as long
	// as the sandboxes of a claim take as a rule.
	volumeTTL = 10 * time.Second
	// knownVolumes is how many are.
	knownVolumes = 1024
	// absentTTL is how long it is believed that there is no volume for a namespace.
	absentTTL = 2 * time.Second
	// readsAtOnce is how many reads of the cluster there are at a time. A namespace has as
	// many as it leaves free for others.
	readsAtOnce = 32
	// volumeTimeout bounds one read of the cluster.
	volumeTimeout = 5 * time.Second
)

// errNoCluster means that there is no cluster to ask for volumes.
var errNoCluster = errors.New("there is no cluster to read PersistentVolumes from")

// errVolume is a volume that cannot be mounted, whichever sandbox it is for.
type errVolume struct{ message string }

func (e *errVolume) Error() string { return e.message }

// Volumes finds the PersistentVolumes that claims mount, and lets a namespace mount those
// only that are meant for it.
type Volumes struct {
	client VolumesGetter
	// known are the volumes that a namespace may mount, and absent those that it may not,
	// for whatever reason: no namespace learns from the time of an answer what others have.
	known, absent *cache.LRUExpireCache
	reads         *fairness.Slots
}

// VolumesGetter reads PersistentVolumes, and the claims that hold them.
type VolumesGetter interface {
	corev1client.PersistentVolumesGetter
	corev1client.PersistentVolumeClaimsGetter
}

// NewVolumes returns the volumes of a cluster; client is nil where there is none.
func NewVolumes(client VolumesGetter) *Volumes {
	return &Volumes{
		client: client, known: cache.NewLRUExpireCache(knownVolumes), absent: cache.NewLRUExpireCache(knownVolumes),
		reads: fairness.NewSlots(readsAtOnce, readsAtOnce),
	}
}

// Check looks at the volumes of a claim that is about to be created. It returns what is
// wrong with the first that is wrong; the error is that of the cluster.
func (v *Volumes) Check(ctx context.Context, claim *v1alpha1.SandboxClaim) (field.ErrorList, error) {
	path := field.NewPath("spec", "dynamicVolumesMount")
	for i := range claim.Spec.DynamicVolumesMount {
		mount := &claim.Spec.DynamicVolumesMount[i]
		_, err := v.find(ctx, claim.Namespace, mount)
		var bad *errVolume
		switch {
		case errors.As(err, &bad):
			return field.ErrorList{field.Invalid(path.Index(i).Child("pvName"), mount.PvName, bad.Error())}, nil
		case errors.Is(err, errNoCluster):
			return field.ErrorList{field.Forbidden(path, err.Error())}, nil
		case err != nil:
			return nil, err
		}
	}
	return nil, nil
}

// of returns the volumes of a claim, in their order. What cannot be mounted is a
// *claims.SetupError.
func (v *Volumes) of(ctx context.Context, claim *v1alpha1.SandboxClaim) ([]runtime.Volume, error) {
	var volumes []runtime.Volume
	for i := range claim.Spec.DynamicVolumesMount {
		volume, err := v.await(ctx, claim.Namespace, &claim.Spec.DynamicVolumesMount[i])
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			var bad *errVolume
			return nil, &claims.SetupError{
				Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed,
				Message:  fmt.Sprintf("mounting %s: %v", claim.Spec.DynamicVolumesMount[i].MountPath, err),
				Hopeless: errors.As(err, &bad) || errors.Is(err, errNoCluster),
			}
		}
		volumes = append(volumes, volume)
	}
	return volumes, nil
}

// await is find, tried again where the cluster does not answer.
func (v *Volumes) await(ctx context.Context, namespace string, mount *v1alpha1.CSIMountConfig) (runtime.Volume, error) {
	var volume runtime.Volume
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, addressBackoff, func(ctx context.Context) (bool, error) {
		var bad *errVolume
		volume, last = v.find(ctx, namespace, mount)
		if errors.As(last, &bad) || errors.Is(last, errNoCluster) {
			return false, last
		}
		return last == nil, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = last
	}
	return volume, err
}

// find returns what is to be mounted.
func (v *Volumes) find(ctx context.Context, namespace string, mount *v1alpha1.CSIMountConfig) (runtime.Volume, error) {
	pv, err := v.get(ctx, volumeKey{namespace, mount.PvName})
	if err != nil {
		return runtime.Volume{}, err
	}
	if pv == nil {
		// Who may not mount it need not know whether it is there.
		return runtime.Volume{}, &errVolume{fmt.Sprintf(
			"there is no PersistentVolume %s that namespace %s may mount: it must be bound to a claim in the namespace, or its annotation %s must list the namespace",
			mount.PvName, namespace, v1alpha1.AnnotationMountNamespaces)}
	}
	return volumeOf(pv, mount)
}

// volumeKey is a volume as a namespace sees it.
type volumeKey struct{ namespace, name string }

// get returns a PersistentVolume that a namespace may mount; nil if there is none.
func (v *Volumes) get(ctx context.Context, key volumeKey) (*corev1.PersistentVolume, error) {
	if v.client == nil {
		return nil, errNoCluster
	}
	if pv, ok := v.cached(key); ok {
		return pv, nil
	}
	release, err := v.reads.Wait(ctx, key.namespace)
	if err != nil {
		return nil, err
	}
	defer release()
	if pv, ok := v.cached(key); ok { // another has read it meanwhile
		return pv, nil
	}
	ctx, cancel := context.WithTimeout(ctx, volumeTimeout)
	defer cancel()
	pv, err := v.read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case pv == nil:
		v.absent.Add(key, nil, absentTTL)
	default:
		v.known.Add(key, pv, volumeTTL)
	}
	return pv, nil
}

func (v *Volumes) cached(key volumeKey) (*corev1.PersistentVolume, bool) {
	if known, ok := v.known.Get(key); ok {
		return known.(*corev1.PersistentVolume), true
	}
	_, absent := v.absent.Get(key)
	return nil, absent
}

// read reads a volume from the cluster; nil if there is none that the namespace may mount.
func (v *Volumes) read(ctx context.Context, key volumeKey) (*corev1.PersistentVolume, error) {
	pv, err := v.client.PersistentVolumes().Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PersistentVolume %s: %w", key.name, err)
	case isListed(pv, key.namespace):
		return pv, nil
	case !isBoundIn(pv, key.namespace):
		return nil, nil
	}
	ref := pv.Spec.ClaimRef
	claim, err := v.client.PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", ref.Namespace, ref.Name, err)
	case claim.UID != ref.UID: // another of the name, maybe in another namespace of the name
		return nil, nil
	}
	return pv, nil
}

// isBoundIn reports whether a volume says that it is bound to a PersistentVolumeClaim of a
// namespace. Claims name volumes of the whole cluster, so it takes more than a name: such a
// claim, or the word of who looks after volumes. One that is released still names its claim.
func isBoundIn(pv *corev1.PersistentVolume, namespace string) bool {
	ref := pv.Spec.ClaimRef
	return pv.Status.Phase == corev1.VolumeBound && ref != nil && ref.Namespace == namespace && ref.UID != ""
}

// isListed reports whether a volume lists a namespace as one that may mount it.
func isListed(pv *corev1.PersistentVolume, namespace string) bool {
	return lists(pv.Annotations[v1alpha1.AnnotationMountNamespaces], namespace, func(a, b string) bool { return a == b })
}

// lists reports whether a list with commas has a word, or "*", which is all.
func lists(list, word string, equal func(a, b string) bool) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(entry string) bool {
		entry = strings.TrimSpace(entry)
		return entry == "*" || entry != "" && equal(entry, word)
	})
}
