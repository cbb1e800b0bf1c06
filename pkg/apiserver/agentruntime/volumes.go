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
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

const (
	// volumeTTL is how long a volume that was found is believed to be as it was: as long
	// as the sandboxes of a claim take as a rule.
	volumeTTL = 10 * time.Second
	// knownVolumes is how many are.
	knownVolumes = 1024
	// volumeTimeout bounds one read of the cluster.
	volumeTimeout = 5 * time.Second
)

// errNoCluster means that there is nobody to ask for volumes.
var errNoCluster = errors.New("there is no cluster to read PersistentVolumes from")

// errVolume is a volume that cannot be mounted, whichever sandbox it is for.
type errVolume struct{ message string }

func (e *errVolume) Error() string { return e.message }

// Volumes finds the PersistentVolumes that claims mount, and lets a namespace mount those
// only that are meant for it.
type Volumes struct {
	client corev1client.PersistentVolumesGetter
	known  *cache.LRUExpireCache
}

// NewVolumes returns the volumes of a cluster; client is nil where there is none.
func NewVolumes(client corev1client.PersistentVolumesGetter) *Volumes {
	return &Volumes{client: client, known: cache.NewLRUExpireCache(knownVolumes)}
}

// Check looks at the volumes of a claim that is about to be created. It returns what is
// wrong with them; the error is that of the cluster.
func (v *Volumes) Check(ctx context.Context, claim *v1alpha1.SandboxClaim) (field.ErrorList, error) {
	var wrong field.ErrorList
	path := field.NewPath("spec", "dynamicVolumesMount")
	for i := range claim.Spec.DynamicVolumesMount {
		mount := &claim.Spec.DynamicVolumesMount[i]
		_, err := v.find(ctx, claim.Namespace, mount)
		var bad *errVolume
		switch {
		case errors.As(err, &bad):
			wrong = append(wrong, field.Invalid(path.Index(i).Child("pvName"), mount.PvName, bad.Error()))
		case errors.Is(err, errNoCluster):
			return field.ErrorList{field.Forbidden(path, err.Error())}, nil
		case err != nil:
			return nil, err
		}
	}
	return wrong, nil
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
	pv, err := v.get(ctx, mount.PvName)
	if err != nil {
		return runtime.Volume{}, err
	}
	if pv == nil || !mayMount(pv, namespace) {
		// Who may not mount it need not know whether it is there.
		return runtime.Volume{}, &errVolume{fmt.Sprintf(
			"there is no PersistentVolume %s that namespace %s may mount: it must be bound to a claim in the namespace, or its annotation %s must list the namespace",
			mount.PvName, namespace, v1alpha1.AnnotationMountNamespaces)}
	}
	return volumeOf(pv, mount)
}

// get reads a PersistentVolume; nil if there is none.
func (v *Volumes) get(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if v.client == nil {
		return nil, errNoCluster
	}
	if known, ok := v.known.Get(name); ok {
		return known.(*corev1.PersistentVolume), nil
	}
	ctx, cancel := context.WithTimeout(ctx, volumeTimeout)
	defer cancel()
	pv, err := v.client.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PersistentVolume %s: %w", name, err)
	}
	v.known.Add(name, pv, volumeTTL)
	return pv, nil
}

// mayMount reports whether sandboxes of a namespace may mount a volume. Claims name
// volumes of the whole cluster, so it takes more than a name: a PersistentVolumeClaim of
// the namespace that holds it, or the word of who looks after volumes.
func mayMount(pv *corev1.PersistentVolume, namespace string) bool {
	if ref := pv.Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
		return true
	}
	listed := strings.Split(pv.Annotations[v1alpha1.AnnotationMountNamespaces], ",")
	return slices.ContainsFunc(listed, func(entry string) bool {
		entry = strings.TrimSpace(entry)
		return entry == "*" || entry == namespace
	})
}
