// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// claimStorage is the storage of a server, with the allocation at work, on an
// etcd.
type claimStorage struct {
	fixture   *registrytest.Fixture
	claims    *sandboxclaim.REST
	status    *base.StatusREST
	sandboxes *base.REST
	sets      *base.REST
}

// newClaimStorage starts an allocation that ends with the test. The fixture may
// be changed before.
func newClaimStorage(t *testing.T, change func(*registrytest.Fixture)) *claimStorage {
	t.Helper()
	fixture := registrytest.New(t)
	fixture.Config.Codec = apiserver.NewStorageCodec()
	if change != nil {
		change(fixture)
	}
	storage, err := apiserver.NewStorage(fixture, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- storage.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ending the allocation: %v", err)
		}
	})
	expect.Eventually(t.Context(), t, func(context.Context) error { return storage.Ready() })
	return &claimStorage{
		fixture:   fixture,
		claims:    storage.Resources["sandboxclaims"].(*sandboxclaim.REST),
		status:    storage.Resources["sandboxclaims/status"].(*base.StatusREST),
		sandboxes: storage.Resources["sandboxes"].(*accesscheck.REST).REST,
		sets:      storage.Resources["sandboxsets"].(*base.REST),
	}
}

func (s *claimStorage) context(t *testing.T) context.Context {
	return registrytest.Context(t, "sandboxclaims")
}

// stock makes the set "pool" in a namespace, with n available sandboxes.
func (s *claimStorage) stock(t *testing.T, namespace string, n int) {
	t.Helper()
	set := registrytest.NewSandboxSet("pool")
	set.Namespace = namespace
	s.stockSet(t, set, n)
}

// stockSet makes a set with n available sandboxes.
func (s *claimStorage) stockSet(t *testing.T, set *v1alpha1.SandboxSet, n int) {
	t.Helper()
	namespace := set.Namespace
	ctx := genericapirequest.WithNamespace(registrytest.Context(t, "sandboxsets"), namespace)
	created, err := s.sets.Create(ctx, set, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options, err := s.fixture.GetRESTOptions(v1alpha1.Resource("sandboxes"), nil)
	if err != nil {
		t.Fatal(err)
	}
	resource := etcdtxn.NewResource(options.StorageConfig, options.ResourcePrefix)
	client := etcdtxn.NewClient(s.fixture.Etcd())
	for begin := 0; begin < n; begin += etcdtxn.MaxOps {
		txn := client.Txn()
		for i := begin; i < min(n, begin+etcdtxn.MaxOps); i++ {
			sb := testutil.AvailableSandbox(created.(*v1alpha1.SandboxSet), i)
			if err := txn.Create(t.Context(), resource, resource.Key(namespace, sb.Name), sb); err != nil {
				t.Fatal(err)
			}
		}
		if err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// claimFailing is a claim that would rather fail than wait or make sandboxes.
func claimFailing(name string, replicas int32) *v1alpha1.SandboxClaim {
	claim := registrytest.NewSandboxClaim(name)
	claim.Spec.Replicas, claim.Spec.OnShortage, claim.Spec.CreateOnNoStock = &replicas, v1alpha1.ShortageFail, new(false)
	return claim
}

func (s *claimStorage) create(t *testing.T, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	t.Helper()
	created, err := s.claims.Create(s.context(t), claim, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating %s: %v", claim.Name, err)
	}
	return created.(*v1alpha1.SandboxClaim)
}

func (s *claimStorage) get(t *testing.T, name string) *v1alpha1.SandboxClaim {
	t.Helper()
	obj, err := s.claims.Get(s.context(t), name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*v1alpha1.SandboxClaim)
}

// bound are the sandboxes in etcd, by name, that belong to claims, with the name
// of each one's.
func (s *claimStorage) bound(t *testing.T) map[string]string {
	t.Helper()
	obj, err := s.sandboxes.List(registrytest.Context(t, "sandboxes"), &metainternalversion.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue}),
	})
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]string{}
	for _, sb := range obj.(*v1alpha1.SandboxList).Items {
		bound[sb.Name] = sb.Labels[v1alpha1.LabelClaimName]
	}
	return bound
}

// unwritten fails if etcd was written to while do ran.
func (s *claimStorage) unwritten(t *testing.T, do func()) {
	t.Helper()
	revision := func() int64 {
		resp, err := s.fixture.Etcd().Get(t.Context(), "no-such-key")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	before := revision()
	do()
	if after := revision(); after != before {
		resp, err := s.fixture.Etcd().Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithMinModRev(before+1), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("etcd went from revision %d to %d; it wrote %v", before, after, resp.Kvs)
	}
}

// Claims are what users of Kubernetes expect of any resource, with every create
// of them binding sandboxes for real.
func TestClaimConventions(t *testing.T) {
	s := newClaimStorage(t, nil)
	const stock = 60
	for _, namespace := range []string{registrytest.Namespace, "test"} { // the generic tester has its own
		s.stock(t, namespace, stock)
	}
	registrytest.Conventions{
		Completes: true,
		Fixture:   s.fixture, Storage: s.claims, Store: s.claims.Store, Resource: "sandboxclaims",
		Valid: func() registrytest.Object { return registrytest.NewSandboxClaim("") },
		Change: func(obj registrytest.Object) {
			obj.(*v1alpha1.SandboxClaim).Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
		},
		Break: func(obj registrytest.Object) {
			obj.(*v1alpha1.SandboxClaim).Spec.Replicas = ptr.To[int32](-1)
		},
	}.Run(t)

	// Each of the claims got its sandbox, and no other did.
	bound := s.bound(t)
	if len(bound) == 0 || len(bound) >= stock {
		t.Errorf("%d of %d are bound: too few to show anything", len(bound), stock)
	}
	byClaim := map[string]int{}
	for _, claim := range bound {
		byClaim[claim]++
	}
	for _, name := range []string{"dry-create", "denied", "applied-dry", "absent", ""} {
		if n := byClaim[name]; n > 0 {
			t.Errorf("%d sandboxes are bound to claim %q, which does not exist", n, name)
		}
	}
	for _, name := range []string{"dry-update", "dry-delete", "update-denied", "twice", "finalized", "applied", "generation"} {
		if n := byClaim[name]; n != 1 {
			t.Errorf("%d sandboxes are bound to claim %q, want 1", n, name)
		}
	}
}

// Whatever is refused, or only tried, writes nothing and takes nothing from the
// pool.
func TestClaimsThatTakeNothing(t *testing.T) {
	const stock = 5
	s := newClaimStorage(t, nil)
	s.stock(t, registrytest.Namespace, stock+1)
	s.create(t, claimFailing("there", 1))

	dry := []string{metav1.DryRunAll}
	create := func(claim *v1alpha1.SandboxClaim, validate rest.ValidateObjectFunc, options metav1.CreateOptions) error {
		_, err := s.claims.Create(s.context(t), claim, validate, &options)
		return err
	}
	update := func(claim *v1alpha1.SandboxClaim, validate rest.ValidateObjectFunc, force bool, options metav1.UpdateOptions) error {
		_, _, err := s.claims.Update(s.context(t), claim.Name, rest.DefaultUpdatedObjectInfo(claim), validate,
			rest.ValidateAllObjectUpdateFunc, force, &options)
		return err
	}
	denied := func(err error) bool { return errors.Is(err, registrytest.ErrDenied) }
	succeeds := func(err error) bool { return err == nil }
	badAnnotation := claimFailing("bad", 1)
	badAnnotation.Spec.Annotations = map[string]string{"agents.kruise.io/owner": "me"}
	noSet := claimFailing("no-set", 1)
	noSet.Spec.TemplateName = "nothing"
	generated := claimFailing("", stock)
	generated.GenerateName = "gen-"
	tests := map[string]struct {
		do   func() error
		want func(error) bool
	}{
		"dry run of create": {
			func() error {
				return create(claimFailing("dry", stock), rest.ValidateAllObjectFunc, metav1.CreateOptions{DryRun: dry})
			}, succeeds,
		},
		"dry run of create, generated name": {
			func() error {
				return create(generated.DeepCopy(), rest.ValidateAllObjectFunc, metav1.CreateOptions{DryRun: dry})
			}, succeeds,
		},
		"dry run of create, too few": {
			func() error {
				return create(claimFailing("dry", stock+1), rest.ValidateAllObjectFunc, metav1.CreateOptions{DryRun: dry})
			}, apierrors.IsTooManyRequests,
		},
		"dry run of apply": {
			func() error {
				return update(claimFailing("dry", stock), rest.ValidateAllObjectFunc, true, metav1.UpdateOptions{DryRun: dry})
			}, succeeds,
		},
		"dry run of delete": {
			func() error {
				_, _, err := s.claims.Delete(s.context(t), "there", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{DryRun: dry})
				return err
			}, succeeds,
		},
		"dry run of delete of all": {
			func() error {
				_, err := s.claims.DeleteCollection(s.context(t), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{DryRun: dry}, nil)
				return err
			}, succeeds,
		},
		"create is denied": {
			func() error { return create(claimFailing("denied", stock), registrytest.Deny, metav1.CreateOptions{}) }, denied,
		},
		"create with a generated name is denied": {
			func() error { return create(generated.DeepCopy(), registrytest.Deny, metav1.CreateOptions{}) }, denied,
		},
		"apply is denied": {
			func() error {
				return update(claimFailing("denied", stock), registrytest.Deny, true, metav1.UpdateOptions{})
			}, denied,
		},
		"the name is taken": {
			func() error {
				return create(claimFailing("there", stock), rest.ValidateAllObjectFunc, metav1.CreateOptions{})
			}, apierrors.IsAlreadyExists,
		},
		"invalid": {
			func() error {
				return create(badAnnotation.DeepCopy(), rest.ValidateAllObjectFunc, metav1.CreateOptions{})
			}, apierrors.IsInvalid,
		},
		"invalid, by apply": {
			func() error {
				return update(badAnnotation.DeepCopy(), rest.ValidateAllObjectFunc, true, metav1.UpdateOptions{})
			}, apierrors.IsInvalid,
		},
		"too few": {
			func() error {
				return create(claimFailing("large", stock+1), rest.ValidateAllObjectFunc, metav1.CreateOptions{})
			}, apierrors.IsTooManyRequests,
		},
		"too few, by apply": {
			func() error {
				return update(claimFailing("large", stock+1), rest.ValidateAllObjectFunc, true, metav1.UpdateOptions{})
			}, apierrors.IsTooManyRequests,
		},
		"no such set": {
			func() error { return create(noSet.DeepCopy(), rest.ValidateAllObjectFunc, metav1.CreateOptions{}) }, apierrors.IsInvalid,
		},
		"put onto nothing": {
			func() error {
				return update(claimFailing("absent", stock), rest.ValidateAllObjectFunc, false, metav1.UpdateOptions{})
			}, apierrors.IsNotFound,
		},
		"apply of what is there": {
			func() error {
				return update(s.get(t, "there"), rest.ValidateAllObjectFunc, true, metav1.UpdateOptions{})
			}, succeeds,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s.unwritten(t, func() {
				if err := tc.do(); !tc.want(err) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	// All are still to be had, at once.
	if got := s.create(t, claimFailing("all", stock)); len(got.Status.Sandboxes) != stock {
		t.Errorf("got %d of %d", len(got.Status.Sandboxes), stock)
	}
}

func TestUpdateOfAClaim(t *testing.T) {
	s := newClaimStorage(t, nil)
	s.stock(t, registrytest.Namespace, 10)
	forged := map[string]string{v1alpha1.AnnotationClaimedBy: "eve", "mine": "yes"}
	kept := map[string]string{v1alpha1.AnnotationClaimedBy: registrytest.UserName, "mine": "yes"}
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		// field is to blame; none if the update is allowed.
		field string
		check func(*testing.T, *v1alpha1.SandboxClaim)
	}{
		"more replicas":     {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To[int32](3) }, field: "spec.replicas"},
		"fewer replicas":    {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To[int32](0) }, field: "spec.replicas"},
		"negative replicas": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To[int32](-1) }, field: "spec.replicas"},
		"time to live": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.TTLAfterCompleted = &metav1.Duration{Duration: 2 * time.Hour} },
			check: func(t *testing.T, c *v1alpha1.SandboxClaim) {
				if c.Generation != 2 || c.Status.ObservedGeneration != 2 {
					t.Errorf("generation %d, observed %d, want 2", c.Generation, c.Status.ObservedGeneration)
				}
			},
		},
		"forged status": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseClaiming}
			},
			check: func(t *testing.T, c *v1alpha1.SandboxClaim) {
				if c.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || len(c.Status.Sandboxes) != 1 || c.Generation != 1 {
					t.Errorf("generation %d, status %+v", c.Generation, c.Status)
				}
			},
		},
		"forged user": {
			change: func(c *v1alpha1.SandboxClaim) { c.Annotations = forged },
			check: func(t *testing.T, c *v1alpha1.SandboxClaim) {
				if diff := cmp.Diff(kept, c.Annotations); diff != "" {
					t.Errorf("annotations (-want +got):\n%s", diff)
				}
			},
		},
		"no user": {
			change: func(c *v1alpha1.SandboxClaim) { c.Annotations = nil },
			check: func(t *testing.T, c *v1alpha1.SandboxClaim) {
				if c.Annotations[v1alpha1.AnnotationClaimedBy] != registrytest.UserName {
					t.Errorf("annotations are %v", c.Annotations)
				}
			},
		},
	}
	i := 0
	for name, tc := range tests {
		i++
		claim := "update-" + strconv.Itoa(i)
		t.Run(name, func(t *testing.T) {
			updated := s.create(t, claimFailing(claim, 1)).DeepCopy()
			tc.change(updated)
			// Apply differs for the storage only in that it may create.
			for _, apply := range []bool{false, true} {
				obj, created, err := s.claims.Update(s.context(t), claim, rest.DefaultUpdatedObjectInfo(updated), rest.ValidateAllObjectFunc,
					rest.ValidateAllObjectUpdateFunc, apply, &metav1.UpdateOptions{})
				switch {
				case tc.field != "":
					var status apierrors.APIStatus
					if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details.Causes[0].Field != tc.field {
						t.Errorf("got %v, want %s to be refused", err, tc.field)
					}
				case err != nil || created:
					t.Errorf("created is %t, %v", created, err)
				default:
					tc.check(t, obj.(*v1alpha1.SandboxClaim))
					updated = obj.(*v1alpha1.SandboxClaim)
				}
			}
		})
	}
}

func TestForgedUserAtCreation(t *testing.T) {
	s := newClaimStorage(t, nil)
	s.stock(t, registrytest.Namespace, 2)
	want := map[string]string{v1alpha1.AnnotationClaimedBy: registrytest.UserName}
	for name, create := range map[string]func(*v1alpha1.SandboxClaim) error{
		"create": func(claim *v1alpha1.SandboxClaim) error {
			_, err := s.claims.Create(s.context(t), claim, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			return err
		},
		"apply": func(claim *v1alpha1.SandboxClaim) error {
			_, _, err := s.claims.Update(s.context(t), claim.Name, rest.DefaultUpdatedObjectInfo(claim), rest.ValidateAllObjectFunc,
				rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
			return err
		},
	} {
		claim := claimFailing(name, 1)
		claim.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "eve"}
		claim.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 7}
		if err := create(claim); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := s.get(t, name)
		if diff := cmp.Diff(want, got.Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.Status.ClaimedReplicas != 1 || len(got.Status.Sandboxes) != 1 {
			t.Errorf("%s: status %+v", name, got.Status)
		}
	}
}

func TestStatusUpdateOfAClaim(t *testing.T) {
	s := newClaimStorage(t, nil)
	s.stock(t, registrytest.Namespace, 2)
	s.create(t, claimFailing("mine", 1))
	before := s.get(t, "mine")

	updated := before.DeepCopy()
	updated.Status.Message = "changed"
	updated.Spec.Replicas = ptr.To[int32](2)
	updated.Labels = map[string]string{"a": "b"}
	updated.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "eve"}
	ctx := registrytest.Context(t, "sandboxclaims", "status")
	if _, _, err := s.status.Update(ctx, "mine", rest.DefaultUpdatedObjectInfo(updated), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want, got := before.DeepCopy(), s.get(t, "mine")
	want.Status.Message, want.ResourceVersion = "changed", got.ResourceVersion
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Nothing is bound by a status, not even where apply may create.
	s.unwritten(t, func() {
		absent := claimFailing("absent", 1)
		if _, _, err := s.status.Update(ctx, "absent", rest.DefaultUpdatedObjectInfo(absent), rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want NotFound", err)
		}
	})
}

// With Retain, as by default, sandboxes stay when their claims go.
func TestDeleteOfClaims(t *testing.T) {
	s := newClaimStorage(t, nil)
	const n = 6
	s.stock(t, registrytest.Namespace, n)
	held := claimFailing("held", 1)
	held.Finalizers = []string{"example.com/hold"}
	s.create(t, held)
	for i := range n - 1 {
		claim := claimFailing(fmt.Sprintf("c-%d", i), 1)
		claim.Labels = map[string]string{"even": strconv.FormatBool(i%2 == 0)}
		s.create(t, claim)
	}
	bound := s.bound(t)

	if _, gone, err := s.claims.Delete(s.context(t), "c-4", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil || !gone {
		t.Errorf("deleting one: gone is %t, %v", gone, err)
	}
	if _, _, err := s.claims.Delete(s.context(t), "c-0", registrytest.Deny, &metav1.DeleteOptions{}); !errors.Is(err, registrytest.ErrDenied) {
		t.Errorf("a denied delete: %v", err)
	}
	wrong := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}
	if _, _, err := s.claims.Delete(s.context(t), "c-0", rest.ValidateAllObjectFunc, wrong); !apierrors.IsConflict(err) {
		t.Errorf("deleting another one of that name: %v", err)
	}
	s.mustHave(t, "c-0", "c-1", "c-2", "c-3", "held")

	even := &metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"even": "true"})}
	if _, err := s.claims.DeleteCollection(s.context(t), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, even); err != nil {
		t.Error(err)
	}
	s.mustHave(t, "c-1", "c-3", "held")
	if _, err := s.claims.DeleteCollection(s.context(t), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, nil); err != nil {
		t.Error(err)
	}
	s.mustHave(t, "held")
	if s.get(t, "held").DeletionTimestamp == nil {
		t.Error("the claim with a finalizer is not being deleted")
	}
	if diff := cmp.Diff(bound, s.bound(t)); diff != "" {
		t.Errorf("sandboxes of claims (-before +after):\n%s", diff)
	}
}

func (s *claimStorage) mustHave(t *testing.T, want ...string) {
	t.Helper()
	obj, err := s.claims.List(s.context(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, claim := range obj.(*v1alpha1.SandboxClaimList).Items {
		got = append(got, claim.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}
