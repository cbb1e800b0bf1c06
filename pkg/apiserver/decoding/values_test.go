// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// huge is a quantity that no computer could write out.
const huge = "1e2147483647"

// TestQuantitiesWithLargeExponents: a quantity that would take too long to decode or compare is
// refused before it is decoded, wherever it stands and however it is written. What is not a
// quantity may look like one.
func TestQuantitiesWithLargeExponents(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	claim := func(spec string) string {
		return `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","spec":` + spec + `}`
	}
	set := func(spec string) string {
		return `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","spec":` + spec + `}`
	}
	container := func(limits string) string {
		return `{"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"limits":` + limits + `}}]}}`
	}
	for name, tc := range map[string]struct{ data, want string }{
		"a limit of a claim":      {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"` + huge + `"}}}}`), "spec.inplaceUpdate.resources.limits[cpu]"},
		"a request of a claim":    {claim(`{"inplaceUpdate":{"resources":{"requests":{"cpu":"` + huge + `"}}}}`), "spec.inplaceUpdate.resources.requests[cpu]"},
		"a number":                {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":` + huge + `}}}}`), "spec.inplaceUpdate.resources.limits[cpu]"},
		"a negative exponent":     {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1E-999999"}}}}`), "1E-999999"},
		"a positive exponent":     {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1.5e+0999"}}}}`), "1.5e+0999"},
		"three digits":            {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e100"}}}}`), "1e100"},
		"two digits":              {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e-99"}}}}`), ""},
		"escaped":                 {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1\u0065999"}}}}`), "1e999"},
		"a key escaped":           {claim(`{"inplaceUpdate":{"resources":{"lim\u0069ts":{"cpu":"1e999"}}}}`), "limits[cpu]"},
		"hidden by a second one":  {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999","cpu":"1"}}}}`), "1e999"},
		"YAML":                    {"apiVersion: agents.kruise.io/v1alpha1\nkind: SandboxClaim\nspec: {inplaceUpdate: {resources: {limits: {cpu: 1e9999999}}}}", "1e9999999"},
		"YAML, escaped":           {"apiVersion: agents.kruise.io/v1alpha1\nkind: SandboxClaim\nspec: {inplaceUpdate: {resources: {limits: {cpu: \"1\\x65999\"}}}}", "1e999"},
		"YAML, folded":            {"apiVersion: agents.kruise.io/v1alpha1\nkind: SandboxClaim\nspec: {inplaceUpdate: {resources: {limits: {cpu: \"1e9\\\n  99\"}}}}", "1e999"},
		"YAML, base64":            {"spec: {inplaceUpdate: {resources: {limits: {cpu: !!binary MWU5OTk5OTk5}}}}", "1e9999999"},
		"YAML, UTF-16":            {"\xfe\xff" + wide("spec: {inplaceUpdate: {resources: {limits: {cpu: 1e999}}}}"), "1e999"},
		"said to be another":      {`{"apiVersion":"x/v1","kind":"X","spec":{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999"}}}}}`, "1e999"},
		"said to be options":      {`{"apiVersion":"agents.kruise.io/v1alpha1","Kind":"DeleteOptions","kind":"Sandbox","spec":{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999"}}}}}`, "1e999"},
		"of a kind alone":         {`{"kind":"SandboxSet","spec":{"template":` + container(`{"memory":"1e999"}`) + `}}`, "1e999"},
		"of a version alone":      {`{"apiVersion":"agents.kruise.io/v1alpha1","spec":{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999"}}}}}`, "1e999"},
		"without a kind":          {`{"spec":{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999"}}}}}`, "1e999"},
		"a list":                  {`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaimList","items":[` + claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999"}}}}`) + `]}`, "items[0].spec"},
		"a template":              {set(`{"template":` + container(`{"memory":"1e999"}`) + `}`), "spec.template.spec.containers[1].resources.limits[memory]"},
		"a template, other case":  {set(`{"Template":{"Spec":{"containers":[{"Resources":{"LIMITS":{"memory":"1e999"}}}]}}}`), "memory"},
		"a patch of a template":   {set(`{"patch":` + container(`{"memory":"1e999"}`) + `}`), "spec.patch.spec.containers[1].resources.limits[memory]"},
		"a volume":                {set(`{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"1e999"}}}}]}`), "spec.volumeClaimTemplates[0].spec.resources.requests[storage]"},
		"an emptyDir":             {set(`{"template":{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e999"}}]}}}`), "sizeLimit"},
		"a field ref":             {set(`{"template":{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1e999"}}}]}]}}}`), "divisor"},
		"environment":             {claim(`{"envVars":{"cpu":"1e999","limits":"1e999"}}`), ""},
		"a commit":                {`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"labels":{"example.com/commit":"1e23456"}}}`, ""},
		"an argument":             {set(`{"template":{"spec":{"containers":[{"args":["1e999"]}]}}}`), ""},
		"not of our kinds":        {`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"resources":{"limits":{"cpu":"1e999"}}}]}}`, ""},
		"not a text":              {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":["1e999"]}}},"replicas":1e300}`), ""},
		"not an object":           {`["1e999",{"spec":1e300}]`, ""},
		"half an object":          {claim(`{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e999"`)[:80], ""},
		"nested without end":      {claim(`{"inplaceUpdate":` + strings.Repeat(`[`, 1e6) + `"1e999"`), ""},
		"nested where lists are":  {`{"items":` + nested(maxDepth-1, `"1e999"`) + `}`, ""},
		"text that ends in the e": {`{"a":"1e`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kind := v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim")
			err := checkValues(scheme, []byte(tc.data), kind)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), v1alpha1.ErrQuantityExponent.Error())):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// nested returns JSON with a value in n lists.
func nested(n int, value string) string {
	return strings.Repeat(`[`, n) + value + strings.Repeat(`]`, n)
}

// TestTimesBeyondYears: a time that cannot be read again once it is written in UTC is refused.
func TestTimesBeyondYears(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for text, refused := range map[string]bool{
		"9999-12-31T23:59:59-23:00":      true,
		"9999-12-31T23:59:59.5-00:01":    true,
		"0000-01-01T00:00:00+23:00":      true,
		`9999\u002d12-31T23:59:59-23:00`: true,
		"9999-12-31T23:59:59Z":           false,
		"0000-01-01T00:00:00Z":           false,
		"9999-12-31":                     false, // which no time takes
	} {
		for data, is := range map[string]bool{
			`{"metadata":{"managedFields":[{"time":%q}]}}`:              true,
			`{"metadata":{"creationTimestamp":%q}}`:                     true,
			`{"spec":{"shutdownTime":%q}}`:                              true,
			`{"spec":{"lifecycle":{"shutdownTime":%q}}}`:                true,
			`{"status":{"conditions":[{"lastTransitionTime":%q}]}}`:     true,
			`{"metadata":{"annotations":{"time":%q}}}`:                  false,
			`{"spec":{"labels":{"time":%q},"envVars":{"shutdown":%q}}}`: false,
		} {
			data = strings.ReplaceAll(data, "%q", `"`+text+`"`)
			err := checkValues(scheme, []byte(data), v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"))
			if (err != nil) != (refused && is) || err != nil && !strings.Contains(err.Error(), errTimeRange.Error()) {
				t.Errorf("%s: %v", data, err)
			}
		}
	}
}

// TestLargeNumbers: a number that no float64 takes is refused, also in raw JSON. In a text it may be.
func TestLargeNumbers(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	long := strings.Repeat("9", 400)
	for data, want := range map[string]error{
		`{"spec":{"template":{"x":1e400}}}`:                  errNumberRange,
		`{"spec":{"template":{"x":-1e+400}}}`:                errNumberRange,
		`{"spec":{"template":{"x":1` + long[:299] + `e99}}}`: errNumberRange,
		`{"spec":{"template":{"x":[` + long + `]}}}`:         errNumberRange,
		`{"spec":{"replicas":1e400}}`:                        errNumberRange,
		`{"spec":{"template":{"x":1e308}}}`:                  nil,
		`{"spec":{"template":{"x":1e-400}}}`:                 nil,
		`{"spec":{"template":{"x":"` + long + `"}}}`:         nil,
		`{"spec":{"template":{"x":"1e400"}}}`:                nil,
		`{"spec":{"template":{"x":"\u0031"}}}`:               nil,
		`{"spec":{"template":{"x":0.` + long + `}}}`:         nil,
	} {
		if err := checkValues(scheme, []byte(data), v1alpha1.SchemeGroupVersion.WithKind("SandboxSet")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", data, err, want)
		}
	}
}

// TestObjectsForValues checks that an object or a list where a field of our kinds has another type is looked into
// without a panic, whatever the type of the field is, and that the number in it is refused.
func TestObjectsForValues(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for kind, of := range scheme.AllKnownTypes() {
		if !isOurs(kind.Group) || kind.Version == runtime.APIVersionInternal || !strings.HasPrefix(kind.Kind, "Sandbox") || strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		for _, path := range pathsOf(of, nil, map[reflect.Type]bool{}) {
			for _, value := range []string{`{"a":{"b":[1e400]}}`, `[{"a":[1e400]}]`, `[[1e400]]`, `{"Format":1e400,"ext":1e400,"seconds":1e400}`} {
				data := value
				for _, key := range slices.Backward(path) {
					if key == "[]" {
						data = "[" + data + "]"
					} else {
						data = fmt.Sprintf("{%q:%s}", key, data)
					}
				}
				if err := checkValues(scheme, []byte(data), kind); err == nil {
					t.Errorf("%s: %s is not refused", kind, data)
				}
			}
		}
	}
}

// pathsOf returns the paths of JSON of the fields of a type, and of what is in them. A type that is within
// itself is followed once.
func pathsOf(t reflect.Type, path []string, above map[reflect.Type]bool) (paths [][]string) {
	if path != nil {
		paths = append(paths, path)
	}
	within := func(t reflect.Type, key string) {
		paths = append(paths, pathsOf(t, append(slices.Clone(path), key), above)...)
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return pathsOf(t.Elem(), path, above)
	case above[t]:
		return paths
	case t.Kind() == reflect.Slice:
		within(t.Elem(), "[]")
	case t.Kind() == reflect.Map:
		within(t.Elem(), "key")
	case t.Kind() == reflect.Struct:
		above[t] = true
		defer delete(above, t)
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				paths = append(paths, pathsOf(f.Type, path, above)...)
			case name != "" && name != "-":
				within(typeOfRaw(f), name)
			}
		}
	}
	return paths
}

// TestLongQuantities: a quantity that takes long to parse is refused.
func TestLongQuantities(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for _, text := range []string{strings.Repeat("9", 400), "0." + strings.Repeat("9", 400), strings.Repeat("9", 400) + "Gi"} {
		data := `{"spec":{"template":{"spec":{"containers":[{"resources":{"limits":{"cpu":"` + text + `"}}}]}}}}`
		err := checkValues(scheme, []byte(data), v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))
		if err == nil || !strings.Contains(err.Error(), v1alpha1.ErrQuantityLength.Error()) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestNestedTooDeep: what is nested so deep that it could not be read again in a list is refused.
// Brackets in texts do not count.
func TestNestedTooDeep(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for name, tc := range map[string]struct {
		data string
		want error
	}{
		"as deep as may be": {`{"a":` + nested(maxDepth-1, "1") + `}`, nil},
		"too deep":          {`{"a":` + nested(maxDepth, "1") + `}`, errTooDeep},
		"objects":           {strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat(`}`, maxDepth+1), errTooDeep},
		"after a text":      {`{"a":"` + strings.Repeat(`}`, 1000) + `","b":` + nested(maxDepth, "1") + `}`, errTooDeep},
		"in turn with text": {strings.Repeat(`{"}":`, maxDepth+1) + "1" + strings.Repeat(`}`, maxDepth+1), errTooDeep},
		"side by side":      {`[` + strings.Repeat(nested(2, "")+",", maxDepth) + `1]`, nil},
		"a text":            {`{"a":"` + strings.Repeat(`\"[{`, maxDepth) + `"}`, nil},
		"YAML":              {"a:\n- " + nested(maxDepth-1, "1"), errTooDeep},
	} {
		if err := checkValues(scheme, []byte(tc.data)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// wide returns a text in UTF-16.
func wide(text string) string {
	var all []byte
	for _, b := range []byte(text) {
		all = append(all, 0, b)
	}
	return string(all)
}

// TestIsSuspicious: what cannot have a bad value is not looked at.
func TestIsSuspicious(t *testing.T) {
	for _, data := range []string{
		`{"metadata":{"annotations":{"a":"{\"replicas\":2}\n"}},"spec":{"templateName":"one12e4","replicas":22,"e10":"1e10"}}`,
		`{"uid":"b3e4561f-9e123-4e105-a-7e999e1234-e1000"}`, `"sandbox-x1.5e100"`, `"ae+100"`,
	} {
		if isSuspicious([]byte(data)) {
			t.Errorf("%s is suspicious", data)
		}
	}
	for _, data := range []string{
		`1e100`, `1E-100`, `1e+-100`, `-1e100`, `{"a":-1.5e100}`, `[.5e100]`, `"e100"`, `" +1e100"`, `"\n1e100"`, `"\"1e100`, "\u00a01e100",
		`\u0031`, `\`, `"9999-12-31"`, `"0000-01-01"`, nested(maxDepth+1, ""),
	} {
		if !isSuspicious([]byte(data)) {
			t.Errorf("%s is not suspicious", data)
		}
	}
}

// TestSuspiciousQuantities: whatever stands before the exponent, a text that is a quantity or a number with a
// large one is suspicious.
func TestSuspiciousQuantities(t *testing.T) {
	parts := []string{"", " ", "+", "-", ".", "0", "7", "a", "e", "E", "m", "Ki"}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				// One digit of the exponent does not take long to parse.
				text := a + b + c
				parsed := resource.Quantity{}
				isQuantity := parsed.UnmarshalJSON([]byte(`"`+text+`e9"`)) == nil
				isNumber := json.Valid([]byte(text + "e9"))
				isFound := isSuspicious([]byte(`{"a":"`+text+`e999"}`)) && isSuspicious([]byte(`{"a":`+text+`e999}`))
				if (isQuantity || isNumber) && !isFound {
					t.Errorf("%q with an exponent is not suspicious", text)
				}
			}
		}
	}
}
