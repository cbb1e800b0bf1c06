// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func attributes() admission.Attributes {
	return admission.NewAttributesRecord(&v1alpha1.Sandbox{}, nil, v1alpha1.SchemeGroupVersion.WithKind("Sandbox"), "team-a", "mine",
		v1alpha1.SchemeGroupVersion.WithResource("sandboxes"), "", admission.Create, nil, false, nil)
}

// What others refuse must not be charged.
func TestComesLast(t *testing.T) {
	o := genericoptions.NewAdmissionOptions()
	want := append(slices.Clone(o.RecommendedPluginOrder), resourcequota.PluginName)
	AddTo(o)
	if got := o.RecommendedPluginOrder; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if errs := o.Validate(); len(errs) > 0 {
		t.Errorf("the options are not valid: %v", errs)
	}
}

// answers is a plugin that answers one after the other, the last one for ever.
type answers struct {
	admission.ValidationInterface
	errs  []error
	asked int
	about runtime.Object
}

func (p *answers) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	p.asked++
	p.about = a.GetObject()
	return p.errs[min(p.asked, len(p.errs))-1]
}

func TestConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "limit", errors.New("modified"))
	exceeded := apierrors.NewForbidden(schema.GroupResource{Resource: "sandboxclaims"}, "mine", errors.New("exceeded quota"))
	tests := map[string]struct {
		plugin string
		errs   []error
		want   error
		asked  int
	}{
		"room":                 {errs: []error{nil}, asked: 1},
		"no room":              {errs: []error{exceeded, nil}, want: exceeded, asked: 1},
		"charged by another":   {errs: []error{conflict, conflict, nil}, asked: 3},
		"and exhausted by it":  {errs: []error{conflict, exceeded}, want: exceeded, asked: 2},
		"no end of it":         {errs: []error{conflict}, want: conflict, asked: 7},
		"the conflict of else": {plugin: "ValidatingAdmissionWebhook", errs: []error{conflict, nil}, want: conflict, asked: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := &answers{errs: tc.errs}
			if tc.plugin == "" {
				tc.plugin = resourcequota.PluginName
			}
			decorated := decorate(plugin, tc.plugin).(admission.ValidationInterface)
			if err := decorated.Validate(t.Context(), attributes(), nil); !errors.Is(err, tc.want) || plugin.asked != tc.asked {
				t.Errorf("got %v after %d times, want %v after %d", err, plugin.asked, tc.want, tc.asked)
			}
		})
	}
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		plugin := &answers{errs: []error{conflict}}
		err := decorate(plugin, resourcequota.PluginName).(admission.ValidationInterface).Validate(ctx, attributes(), nil)
		if err == nil || plugin.asked > 1 {
			t.Errorf("got %v after %d times", err, plugin.asked)
		}
	})
}

// configured keeps what the plugin would be given.
type configured struct {
	answers
	configuration quotav1.Configuration
}

func (c *configured) SetQuotaConfiguration(configuration quotav1.Configuration) {
	c.configuration = configuration
}

func (c *configured) ValidateInitialization() error { return nil }

func TestCharge(t *testing.T) {
	plugin := &configured{answers: answers{errs: []error{nil}}}
	Initializer().Initialize(plugin)
	const resource, also = "count/sandboxes.agents.kruise.io", "count/sandboxes.agents.x-k8s.io"
	tests := map[string]struct {
		ctx  context.Context
		want int64
	}{
		"one":             {t.Context(), 1},
		"three at once":   {WithCharge(t.Context(), 3), 3},
		"by the last one": {WithCharge(t.Context(), 0), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plugin.asked, plugin.about = 0, nil
			if err := decorate(plugin, resourcequota.PluginName).(admission.ValidationInterface).Validate(tc.ctx, attributes(), nil); err != nil {
				t.Fatal(err)
			}
			if tc.want == 0 {
				if plugin.asked > 0 {
					t.Error("it is charged")
				}
				return
			}
			// A write through either group is charged under both names.
			counted := 0
			for _, e := range plugin.configuration.Evaluators() {
				if e.GroupResource().Resource != "sandboxes" {
					continue
				}
				counted++
				usage, err := e.Usage(plugin.about)
				used, usedToo := usage[resource], usage[also]
				if err != nil || len(usage) != 2 || used.Value() != tc.want || usedToo.Value() != tc.want {
					t.Errorf("%s: charged are %v, %v; want %d under each name", e.GroupResource(), usage, err, tc.want)
				}
				if named := e.MatchingResources([]corev1.ResourceName{also, resource}); len(named) != 2 {
					t.Errorf("%s: a quota is matched by %v", e.GroupResource(), named)
				}
			}
			if counted != 2 {
				t.Errorf("sandboxes are counted in %d groups, want 2", counted)
			}
		})
	}
}
