// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// releases serves releases of claims that are stored with their sandboxes.
type releases struct {
	*sandboxclaim.ReleaseREST
	fixture *registrytest.Fixture
}

// newReleases returns releases of which each deletion is admitted.
func newReleases(t *testing.T, admit rest.ValidateObjectFunc) *releases {
	t.Helper()
	fixture := registrytest.New(t)
	storage, _ := newStorage(t, fixture, &Provider{
		AdmitDelete: func(context.Context, string, string, *metav1.DeleteOptions) rest.ValidateObjectFunc { return admit },
	})
	served, ok := storage["sandboxclaims/release"].(*sandboxclaim.ReleaseREST)
	if !ok {
		t.Fatal("no release is served")
	}
	return &releases{served, fixture}
}

// store stores a claim that is completed with some sandboxes.
func (r *releases) store(t *testing.T, name string, sandboxes int) {
	t.Helper()
	txn := etcdtxn.NewClient(r.fixture.Etcd()).Txn()
	create := func(resource, name string, object runtime.Object) {
		t.Helper()
		group := schema.GroupResource{Group: v1alpha1.GroupName, Resource: resource}
		stored := etcdtxn.NewResource(r.fixture.Config.ForResource(group), group.Group+"/"+group.Resource)
		if err := txn.Create(t.Context(), stored, stored.Key(registrytest.Namespace, name), object); err != nil {
			t.Fatal(err)
		}
	}
	claim := registrytest.NewSandboxClaim(name)
	claim.UID, claim.Status.Phase = types.UID(name), v1alpha1.SandboxClaimPhaseCompleted
	for i := range sandboxes {
		sandbox := registrytest.NewSandbox(fmt.Sprintf("%s-%d", name, i))
		sandbox.UID = types.UID(sandbox.Name)
		sandbox.Labels = map[string]string{v1alpha1.LabelClaimName: name}
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationOwner: string(claim.UID)}
		create("sandboxes", sandbox.Name, sandbox)
		claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: sandbox.Name})
	}
	create("sandboxclaims", name, claim)
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// release releases all sandboxes of a claim.
func (r *releases) release(ctx context.Context, name string, dryRun ...string) (*v1alpha1.SandboxClaimRelease, error) {
	obj, err := r.Create(ctx, name, &v1alpha1.SandboxClaimRelease{}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
	answer, _ := obj.(*v1alpha1.SandboxClaimRelease)
	return answer, err
}

// TestWorkOfReleases: a release counts as work by the sandboxes of the claim, and deletes none if that is refused.
func TestWorkOfReleases(t *testing.T) {
	r := newReleases(t, rest.ValidateAllObjectFunc)
	r.store(t, "mine", 3)
	busy := errors.New("busy")
	for name, tc := range map[string]struct {
		dryRun []string
		refuse error
	}{"a dry run": {dryRun: []string{metav1.DryRunAll}}, "refused": {refuse: busy}} {
		began, ended := 0, 0
		ctx := base.WithWork(registrytest.Context(t, "sandboxclaims", "release"), func(_ context.Context, bytes int) (func(), error) {
			began += bytes
			return func() { ended += bytes }, tc.refuse
		})
		_, err := r.release(ctx, "mine", tc.dryRun...)
		if !errors.Is(err, tc.refuse) || began != 3*base.SandboxWork || (ended == began) != (err == nil) {
			t.Errorf("%s: %v, %d bytes of work began, and %d ended", name, err, began, ended)
		}
	}
	for i := range 3 {
		if name := fmt.Sprintf("mine-%d", i); len(r.fixture.Raw(t, "sandboxes", name)) == 0 {
			t.Errorf("sandbox %s is gone", name)
		}
	}
}

// TestDeletesOfReleases: the releases of a namespace delete at most 32 sandboxes at a time, and all of them in the end.
func TestDeletesOfReleases(t *testing.T) {
	const each, atOnce = 16, 32
	var mu sync.Mutex
	running, most := 0, 0
	full, proceed := make(chan struct{}), make(chan struct{})
	r := newReleases(t, func(context.Context, runtime.Object) error {
		mu.Lock()
		running++
		if most = max(most, running); running == atOnce && most == atOnce {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-proceed
		mu.Lock()
		defer mu.Unlock()
		running--
		return nil
	})
	names := []string{"a", "b", "c"}
	for _, name := range names {
		r.store(t, name, each)
	}
	ctx := registrytest.Context(t, "sandboxclaims", "release")
	var done sync.WaitGroup
	for _, name := range names {
		done.Go(func() {
			if answer, err := r.release(ctx, name); err != nil || len(answer.Status.Released) != each {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
		})
	}
	<-full
	time.Sleep(100 * time.Millisecond) // more would have begun by now
	close(proceed)
	done.Wait()
	if most != atOnce {
		t.Errorf("%d deletions ran at a time, want %d", most, atOnce)
	}
}
