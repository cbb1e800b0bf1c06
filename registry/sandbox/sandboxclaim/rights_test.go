// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// binders allows who is in it to bind.
type binders []string

func (b binders) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "bind" && a.GetResource() == "sandboxclaims" && a.GetNamespace() == registrytest.Namespace && slices.Contains(b, a.GetUser().GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// TestClaimTableMatchesServer changes each field of the spec of a claim, as its claimer, as a user who may
// bind and as another. The other user is refused the fields that docs/security.md names a right
// for, and no others.
func TestClaimTableMatchesServer(t *testing.T) {
	tables := registrytest.FieldTables(t)["SandboxClaim"]
	checker := NewAccessChecker(binders{"binder"})
	write := func(name string, is, was *v1alpha1.SandboxClaim) error {
		ctx := genericapirequest.WithUser(registrytest.Context(t, "sandboxclaims"), &user.DefaultInfo{Name: name})
		return checker.Update(rest.ValidateAllObjectUpdateFunc, false)(ctx, is, was)
	}
	for at := range reflect.TypeFor[v1alpha1.SandboxClaimSpec]().Fields() {
		name, _, _ := strings.Cut(at.Tag.Get("json"), ",")
		t.Run(name, func(t *testing.T) {
			row := slices.IndexFunc(tables, func(r registrytest.FieldRow) bool { return slices.Contains(r.Fields, name) })
			if row < 0 {
				t.Fatal("it has no row")
			}
			refused := strings.Contains(tables[row].Update, "the claimer, or `bind`")
			was := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
				Name: "claim", Namespace: registrytest.Namespace, Annotations: map[string]string{v1alpha1.AnnotationClaimedBy: "claimer"},
			}}
			is := was.DeepCopy()
			setNonZero(t, reflect.ValueOf(&is.Spec).Elem().FieldByIndex(at.Index))
			for _, who := range []string{"claimer", "binder"} {
				if err := write(who, is, was); err != nil {
					t.Errorf("refused to the %s: %v", who, err)
				}
			}
			for what, change := range map[string][2]*v1alpha1.SandboxClaim{"set": {is, was}, "taken away": {was, is}} {
				if err := write("other", change[0], change[1]); apierrors.IsForbidden(err) != refused || err != nil && !refused {
					t.Errorf("%s by another user: %v, but in docs/security.md it is %q", what, err, tables[row].Update)
				}
			}
			if err := write("other", is, is.DeepCopy()); err != nil {
				t.Errorf("unchanged: %v", err)
			}
			delete(was.Annotations, v1alpha1.AnnotationClaimedBy)
			if err := write("", is, was); apierrors.IsForbidden(err) != refused {
				t.Errorf("of a claim whose claimer is not known: %v", err)
			}
		})
	}
}

// TestOthersDoNotOpenSandboxes: who did not create a claim does not change who reaches its sandboxes
// through the gateway of the E2B API, nor by whose key they were made. Other annotations they may.
func TestOthersDoNotOpenSandboxes(t *testing.T) {
	checker := NewAccessChecker(binders{"binder"})
	for key, guarded := range map[string]bool{v1alpha1.AnnotationE2BPrivate: true, v1alpha1.AnnotationE2BKeyID: true, "example.com/a": false} {
		for who, may := range map[string]bool{"claimer": true, "binder": true, "other": !guarded} {
			was := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
				Name: "claim", Namespace: registrytest.Namespace, Annotations: map[string]string{v1alpha1.AnnotationClaimedBy: "claimer"},
			}}
			was.Spec.Annotations = map[string]string{key: "true"}
			is := was.DeepCopy()
			delete(is.Spec.Annotations, key)
			ctx := genericapirequest.WithUser(registrytest.Context(t, "sandboxclaims"), &user.DefaultInfo{Name: who})
			if err := checker.Update(rest.ValidateAllObjectUpdateFunc, false)(ctx, is, was); may != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s without %s: %v", who, key, err)
			}
		}
	}
}

// setNonZero gives a field a value that is not its zero value.
func setNonZero(t *testing.T, v reflect.Value) {
	t.Helper()
	if raw, ok := reflect.TypeAssert[runtime.RawExtension](v); ok {
		raw.Raw = []byte(`{"metadata":{"name":"data"}}`)
		v.Set(reflect.ValueOf(raw))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setNonZero(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setNonZero(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.String:
		v.SetString("value")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Struct:
		if v.NumField() > 0 && v.Field(0).CanSet() {
			setNonZero(t, v.Field(0))
		}
	default:
		t.Fatalf("no value for a %s", v.Kind())
	}
}
