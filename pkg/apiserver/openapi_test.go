// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
)

func TestEveryFieldIsDescribed(t *testing.T) {
	checked := 0
	eachSchema(t, func(t *testing.T, name string, schema spec.Schema) {
		if schema.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for property, s := range schema.Properties {
			checked++
			if strings.TrimSpace(s.Description) == "" {
				t.Errorf("%s.%s has no description", name, property)
			}
		}
	})
	if checked < 200 {
		t.Errorf("found only %d fields: are the prefixes %q right?", checked, modelPrefixes)
	}
}

func TestRawJSONKeepsItsFields(t *testing.T) {
	raw := runtime.RawExtension{}.OpenAPIModelName()
	kept := map[string]bool{}
	definitions := GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) })
	eachSchema(t, func(t *testing.T, name string, schema spec.Schema) {
		for property, s := range schema.Properties {
			for _, part := range []*spec.Schema{&s, items(s)} {
				if part == nil {
					continue
				}
				if strings.Contains(part.Ref.String(), raw) {
					t.Errorf("%s.%s refers to %s", name, property, raw)
				}
				if name, ok := strings.CutPrefix(part.Ref.String(), "#/definitions/"+podModels); ok {
					part = new(definitions[podModels+name].Schema)
				}
				if keep, _ := part.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); keep {
					kept[name+"."+property] = part.Type.Contains("object")
				}
			}
		}
	})
	for prefix, fields := range map[string][]string{
		modelPrefix(v1alpha1.Sandbox{}):                {"SandboxSpec.template", "SandboxSetSpec.patch", "SandboxTemplateSpec.template", "SandboxClaimSpec.volumeClaimTemplates"},
		modelPrefix(agentsv1beta1.Sandbox{}):           {"SandboxSpec.podTemplate", "SandboxSpec.volumeClaimTemplates"},
		modelPrefix(agentsv1alpha1.Sandbox{}):          {"SandboxSpec.podTemplate"},
		modelPrefix(extensionsv1beta1.SandboxClaim{}):  {"SandboxTemplateSpec.podTemplate", "SandboxClaimSpec.volumeClaimTemplates"},
		modelPrefix(extensionsv1alpha1.SandboxClaim{}): {"SandboxTemplateSpec.podTemplate"},
	} {
		for _, field := range fields {
			if !kept[prefix+field] {
				t.Errorf("%s%s is not an object of unknown fields", prefix, field)
			}
		}
	}
}

// Every object within a pod template keeps the fields that are not known, every list says how
// it is merged, and every field says what it is.
func TestSchemaOfPodTemplates(t *testing.T) {
	checked := 0
	definitions := GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) })
	for name, definition := range definitions {
		if !strings.HasPrefix(name, podModels) {
			continue
		}
		checked++
		if keep, _ := definition.Schema.Extensions.GetBool(preserveUnknown); !keep {
			t.Errorf("%s does not keep unknown fields", name)
		}
		for _, needed := range definition.Dependencies {
			if _, ok := definitions[needed]; !ok {
				t.Errorf("%s needs %s, which is not there", name, needed)
			}
		}
		for property, s := range definition.Schema.Properties {
			if s.Type.Contains("array") != (s.Extensions["x-kubernetes-list-type"] != nil) {
				t.Errorf("%s.%s has the list type %v", name, property, s.Extensions["x-kubernetes-list-type"])
			}
			keys, _ := s.Extensions["x-kubernetes-list-map-keys"].([]any)
			for _, key := range keys {
				of := definitions[strings.TrimPrefix(s.Items.Schema.Ref.String(), "#/definitions/")]
				if of.Schema.Properties[key.(string)].Default == nil {
					t.Errorf("an element of %s.%s without %s keeps the object from being applied to", name, property, key)
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("there are %d definitions", checked)
	}
	containers := definitions[podModels+"api.core.v1.PodSpec"].Schema.Properties["containers"]
	if keys := fmt.Sprint(containers.Extensions["x-kubernetes-list-map-keys"]); keys != "[name]" || containers.Description == "" {
		t.Errorf("containers are merged by %s: %s", keys, containers.Description)
	}
}

func items(s spec.Schema) *spec.Schema {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

// Server-side apply finds the schema of an object by its kind, and would have two for one
// that two definitions claim. The internal versions are the stored types under other names,
// which no document may tell.
func TestKindsOfDefinitions(t *testing.T) {
	v2, v3 := openAPIConfigs()
	for name, names := range map[string]func(string) (string, spec.Extensions){"v2": v2.GetDefinitionName, "v3": v3.GetDefinitionName} {
		of := map[string]string{}
		for _, kind := range []util.OpenAPIModelNamer{
			v1alpha1.SandboxClaim{}, v1alpha1.SandboxSet{}, v1alpha1.SandboxTemplate{}, v1alpha1.Sandbox{},
			extensionsv1beta1.SandboxClaim{}, extensionsv1beta1.SandboxWarmPool{}, extensionsv1alpha1.SandboxWarmPool{},
			agentsv1beta1.Sandbox{}, agentsv1alpha1.Sandbox{},
		} {
			_, extensions := names(kind.OpenAPIModelName())
			kinds, _ := extensions[extensionKinds].([]any)
			if len(kinds) != 1 {
				t.Errorf("%s: %T is %v", name, kind, kinds)
				continue
			}
			if other, twice := of[fmt.Sprint(kinds)]; twice {
				t.Errorf("%s: %v is %T and %s", name, kinds, kind, other)
			}
			of[fmt.Sprint(kinds)] = fmt.Sprintf("%T", kind)
		}
	}
}

// Server-side apply goes by the schema of an object's kind, and keeps what raw JSON holds.
func TestApplyHasSchemasOfEveryKind(t *testing.T) {
	_, v3 := openAPIConfigs()
	var objects []runtime.Object
	var models []string
	for _, group := range []schema.GroupVersion{
		v1alpha1.SchemeGroupVersion, agentsv1beta1.SchemeGroupVersion, agentsv1alpha1.SchemeGroupVersion,
		extensionsv1beta1.SchemeGroupVersion, extensionsv1alpha1.SchemeGroupVersion,
	} {
		for _, kind := range []string{"SandboxClaim", "SandboxSet", "SandboxWarmPool", "SandboxTemplate", "Sandbox"} {
			object, err := scheme.Scheme.New(group.WithKind(kind))
			if err != nil {
				continue // another group has it
			}
			object.GetObjectKind().SetGroupVersionKind(group.WithKind(kind))
			objects, models = append(objects, object), append(models, object.(util.OpenAPIModelNamer).OpenAPIModelName())
		}
	}
	if len(objects) != 12 {
		t.Fatalf("there are %v", models)
	}
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(v3, models...)
	if err != nil {
		t.Fatal(err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if _, err := converter.ObjectToTyped(object); err != nil {
			t.Errorf("%v: %v", object.GetObjectKind().GroupVersionKind(), err)
		}
	}

	template := &extensionsv1beta1.SandboxTemplate{TypeMeta: metav1.TypeMeta{APIVersion: extensionsv1beta1.SchemeGroupVersion.String(), Kind: "SandboxTemplate"}}
	template.Spec.PodTemplate = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"a","newField":1}]}}`)}
	typed, err := converter.ObjectToTyped(template)
	if err != nil {
		t.Fatal(err)
	}
	back, err := converter.TypedToObject(typed)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(back); !strings.Contains(text, "newField:1") {
		t.Errorf("of the pod template there is %s", text)
	}
}

// eachSchema calls f with the schemas of our groups.
func eachSchema(t *testing.T, f func(t *testing.T, name string, schema spec.Schema)) {
	t.Helper()
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) }
	for name, definition := range GetOpenAPIDefinitions(ref) {
		if isModel(name) {
			f(t, name, definition.Schema)
		}
	}
}
