// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

const key = "/agents.kruise.io/sandboxclaims/team-a/mine"

func TestBindingCreate(t *testing.T) {
	atVersion := registrytest.NewSandboxClaim("mine")
	atVersion.ResourceVersion = "3"
	tests := map[string]struct {
		obj, out runtime.Object
		err      error
		want     error // nil: any
		binds    int
	}{
		"binds":              {obj: registrytest.NewSandboxClaim("mine"), out: &v1alpha1.SandboxClaim{}, binds: 1},
		"no out":             {obj: registrytest.NewSandboxClaim("mine"), binds: 1},
		"another kind":       {obj: registrytest.NewSandbox("mine"), want: errors.ErrUnsupported},
		"version is set":     {obj: atVersion, want: storage.ErrResourceVersionSetOnCreate},
		"the binder refuses": {obj: registrytest.NewSandboxClaim("mine"), err: context.Canceled, want: context.Canceled, binds: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			binder := &fakeBinder{err: tc.err}
			s := &bindingStorage{binder: binder}
			err := s.Create(t.Context(), key, tc.obj, tc.out, 0)
			switch {
			case errors.Is(tc.want, errors.ErrUnsupported):
				if err == nil {
					t.Error("succeeds")
				}
			case !errors.Is(err, tc.want):
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if len(binder.created) != tc.binds {
				t.Errorf("binds %d times, want %d", len(binder.created), tc.binds)
			}
			if out, ok := tc.out.(*v1alpha1.SandboxClaim); ok && (out.ResourceVersion != "7" || out.Status.Phase == "") {
				t.Errorf("the answer is at %q, phase %q: not what the binder returned", out.ResourceVersion, out.Status.Phase)
			}
		})
	}
}

// missing is a storage of updates: what there is may appear while one runs.
type missing struct {
	storage.Interface
	stored *v1alpha1.SandboxClaim
	// runs counts update functions; each is run so many times.
	runs, times int
	cached      []runtime.Object
	err         error
}

func (s *missing) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, ignoreNotFound bool,
	_ *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	s.cached = append(s.cached, cached)
	if s.err != nil {
		return s.err
	}
	for range max(s.times, 1) {
		s.runs++
		input, meta := &v1alpha1.SandboxClaim{}, storage.ResponseMeta{}
		switch {
		case s.stored != nil:
			input, meta.ResourceVersion = s.stored.DeepCopy(), 5
		case !ignoreNotFound:
			return storage.NewKeyNotFoundError(key, 0)
		}
		updated, _, err := tryUpdate(input, meta)
		if err != nil {
			return err
		}
		*out.(*v1alpha1.SandboxClaim) = *updated.(*v1alpha1.SandboxClaim)
	}
	return nil
}

func TestBindingGuaranteedUpdate(t *testing.T) {
	stored := registrytest.NewSandboxClaim("mine")
	stored.UID = "there"
	refused := errors.New("refused")
	tests := map[string]struct {
		inner          *missing
		ignoreNotFound bool
		update         error
		binder         func(*missing) *fakeBinder

		want      func(error) bool
		wantUID   string
		wantBinds int
	}{
		"exists":              {inner: &missing{stored: stored}, ignoreNotFound: true, wantUID: "there"},
		"update of a claim":   {inner: &missing{stored: stored}, wantUID: "there"},
		"absent, only update": {inner: &missing{}, want: storage.IsNotFound},
		"absent":              {inner: &missing{}, ignoreNotFound: true, wantUID: "new", wantBinds: 1},
		"absent, refused": {
			inner: &missing{}, ignoreNotFound: true, update: refused,
			want: func(err error) bool { return errors.Is(err, refused) },
		},
		"etcd fails": {
			inner: &missing{err: refused}, ignoreNotFound: true,
			want: func(err error) bool { return errors.Is(err, refused) },
		},
		"absent, cannot bind": {
			inner: &missing{}, ignoreNotFound: true, wantBinds: 1,
			binder: func(*missing) *fakeBinder { return &fakeBinder{err: allocator.ErrSetNotFound} },
			want:   apierrors.IsInvalid,
		},
		"another client creates it meanwhile": {
			inner: &missing{}, ignoreNotFound: true, wantUID: "there", wantBinds: 1,
			binder: func(inner *missing) *fakeBinder {
				return &fakeBinder{err: fmt.Errorf("binding: %w", allocator.ErrClaimExists), onCreate: func() { inner.stored = stored }}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			binder := &fakeBinder{}
			if tc.binder != nil {
				binder = tc.binder(tc.inner)
			}
			s := &bindingStorage{Interface: tc.inner, binder: binder}
			update := func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
				if tc.update != nil {
					return nil, nil, tc.update
				}
				claim := input.(*v1alpha1.SandboxClaim)
				if claim.UID == "" {
					claim = registrytest.NewSandboxClaim("mine")
					claim.UID = "new"
				}
				claim.Labels = map[string]string{"updated": "yes"}
				return claim, nil, nil
			}
			out := &v1alpha1.SandboxClaim{}
			waits := 0
			ctx := WithWaiting(t.Context(), func() { waits++ })
			err := s.GuaranteedUpdate(ctx, key, out, tc.ignoreNotFound, nil, update, registrytest.NewSandboxClaim("suggested"))
			if tc.want != nil {
				if !tc.want(err) {
					t.Errorf("got %v", err)
				}
			} else if err != nil || string(out.UID) != tc.wantUID || out.Labels["updated"] != "yes" {
				t.Errorf("got %q with labels %v, %v; want %q", out.UID, out.Labels, err, tc.wantUID)
			}
			if len(binder.created) != tc.wantBinds {
				t.Errorf("binds %d times, want %d", len(binder.created), tc.wantBinds)
			}
			if waits != tc.wantBinds {
				t.Errorf("reports %d times that the claim waits, want %d", waits, tc.wantBinds)
			}
			// What the caller believed to be there is of no use once it was absent.
			for i, cached := range tc.inner.cached {
				if (cached == nil) != (i > 0) {
					t.Errorf("update %d is given %v", i, cached)
				}
			}
		})
	}
}

// Names are generated until one is free, and nothing is bound for those that are
// not.
func TestGeneratedNameIsTaken(t *testing.T) {
	binder := &fakeBinder{err: allocator.ErrClaimExists}
	r := newTestREST(t, binder)
	binder.onCreate = func() {
		if len(binder.created) == 3 {
			binder.err = nil
		}
	}
	claim := registrytest.NewSandboxClaim("")
	claim.GenerateName = "run-"
	created, err := r.Create(registrytest.Context(t, "sandboxclaims"), claim, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, c := range binder.created {
		tried[c.Name] = true
	}
	if len(tried) != 3 || created.(*v1alpha1.SandboxClaim).Name != binder.created[2].Name {
		t.Errorf("tried %v, answered %s", tried, created.(*v1alpha1.SandboxClaim).Name)
	}
}

func TestBindingOptions(t *testing.T) {
	broken := errors.New("broken")
	if _, err := base.WrapStorage(brokenGetter{broken}, nil).GetRESTOptions(claimResource, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	fixture := registrytest.New(t)
	fixture.Decorator = func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object,
		func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		return nil, nil, broken
	}
	if _, err := NewREST(fixture.Scheme, fixture, &fakeBinder{}, validation.DefaultClaimLimits()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type brokenGetter struct{ err error }

func (g brokenGetter) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, g.err
}

func TestNames(t *testing.T) {
	r := newTestREST(t, &fakeBinder{})
	if diff := cmp.Diff([]string{"sbc", "sandboxclaim"}, r.ShortNames()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sandlot"}, r.Categories()); diff != "" {
		t.Error(diff)
	}
	if got := r.GetSingularName(); got != "sbc" {
		t.Errorf("singular is %q", got)
	}
}
