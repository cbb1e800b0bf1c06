// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestRaise(t *testing.T) {
	tests := map[string]struct {
		have, want string
		// raised is empty where nothing changes.
		raised string
		err    string
	}{
		"cpu is raised, everything else stays": {
			have: `{"metadata":{"labels":{"pool":"spot"}},"spec":{"unknown":9007199254740993,"containers":[
				{"name":"main","image":"a","resources":{"requests":{"cpu":"2","memory":"8Gi","gpu":"1"}}}]}}`,
			want: `{"spec":{"containers":[{"name":"main","image":"b","resources":{"requests":{"cpu":"4","memory":"8Gi","gpu":"2"}}}]}}`,
			raised: `{"metadata":{"labels":{"pool":"spot"}},"spec":{"unknown":9007199254740993,"containers":[
				{"name":"main","image":"a","resources":{"requests":{"cpu":"4","memory":"8Gi","gpu":"1"}}}]}}`,
		},
		"requests and limits of cpu and memory": {
			have:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":1,"memory":"1Gi"},"limits":{"cpu":"1500m","memory":"1Gi"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2","memory":"2Gi"},"limits":{"cpu":4,"memory":"2048Mi"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2","memory":"2Gi"},"limits":{"cpu":"4","memory":"2Gi"}}}]}}`,
		},
		"what is larger stays": {
			have:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"8","memory":"1Gi"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4","memory":"2Gi"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"8","memory":"2Gi"}}}]}}`,
		},
		"the same in another notation": {
			have: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2000m"},"limits":{"cpu":2}}}]}}`,
			want: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}]}}`,
		},
		"a request that it had not, and one that is a limit in the goal": {
			have:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"memory":"1Gi"},"limits":{"cpu":"2"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2","memory":"1Gi"}}}]}}`,
		},
		"no resources at all": {
			have:   `{"spec":{"containers":[{"name":"main"}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}`,
		},
		"a limit is a request": {
			have: `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"2"}}}]}}`,
			want: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`,
		},
		"a request that was the limit stays what it was": {
			have:   `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"2"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"4"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"4"}}}]}}`,
		},
		"a goal without requests is its limits": {
			have:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"4"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"4"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4"},"limits":{"cpu":"4"}}}]}}`,
		},
		"no limits where there are none": {
			have: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`,
			want: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"4"}}}]}}`,
		},
		"containers by name, whatever their order": {
			have:   `{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}},{"name":"b","resources":{"requests":{"cpu":"1"}}},{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"b","resources":{"requests":{"cpu":"3"}}},{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}},{"name":"b","resources":{"requests":{"cpu":"3"}}},{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`,
		},
		"of init containers the sidecars": {
			have:   `{"spec":{"initContainers":[{"name":"side","restartPolicy":"Always","resources":{"limits":{"cpu":"1"}}},{"name":"once","resources":{"limits":{"cpu":"1"}}}]}}`,
			want:   `{"spec":{"initContainers":[{"name":"side","restartPolicy":"Always","resources":{"limits":{"cpu":"2"}}},{"name":"once","resources":{"limits":{"cpu":"2"}}}]}}`,
			raised: `{"spec":{"initContainers":[{"name":"side","restartPolicy":"Always","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}},{"name":"once","resources":{"limits":{"cpu":"1"}}}]}}`,
		},
		"a limit goes up to a request": {
			have:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"2","memory":"1Gi"}}}]}}`,
			want:   `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4","memory":"2Gi"}}}]}}`,
			raised: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4","memory":"2Gi"},"limits":{"cpu":"4","memory":"2Gi"}}}]}}`,
		},
		"a quantity that is none": {
			have: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"much"}}}]}}`,
			want: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}`,
			err:  "the template to raise: resources of the pod template: quantities must match",
		},
		"a quantity that is none in the goal": {
			have: `{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":1}}}]}}`,
			want: `{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":true}}}]}}`,
			err:  "the template to raise it to: resources of the pod template: quantities must match",
		},
		"a pod as a whole": {
			have: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}],"resources":{"requests":{"cpu":"2"}}}}`,
			want: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}],"resources":{"requests":{"cpu":"4"}}}}`,
			err:  "pod: cpu: what the containers of a pod share cannot be raised",
		},
		"a pod as a whole that is large enough": {
			have: `{"spec":{"resources":{"requests":{"cpu":"4"}}}}`,
			want: `{"spec":{"resources":{"requests":{"cpu":4}}}}`,
		},
		"nothing to raise to": {have: `{}`, want: `null`, err: "the template to raise it to: "},
		"not a template":      {have: `[]`, want: `{}`, err: "the template to raise: "},
		"shapes that fit nothing": {
			have: `{"spec":{"containers":[7,{"name":8},{"name":"main"}],"initContainers":{}}}`,
			want: `{"spec":{"containers":[{"name":"other","resources":{"requests":{"cpu":1}}}]}}`,
			err:  "the template to raise: resources of the pod template: json: cannot unmarshal number",
		},
		"resources that are none": {
			have: `{"spec":{"containers":[{"name":"main","resources":"x"}]}}`, want: `{}`,
			err: "the template to raise: resources of the pod template: json: cannot unmarshal string",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			have := &runtime.RawExtension{Raw: []byte(tc.have)}
			raised, changed, err := Raise(have, &runtime.RawExtension{Raw: []byte(tc.want)})
			switch {
			case tc.err != "":
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Fatalf("error is %v, want %q", err, tc.err)
				}
				return
			case err != nil:
				t.Fatal(err)
			case tc.raised == "":
				if changed || raised != have {
					t.Errorf("changed %v: %s", changed, raised.Raw)
				}
				return
			}
			if !changed {
				t.Fatal("nothing changed")
			}
			if diff := cmp.Diff(canonical(t, tc.raised), string(raised.Raw)); diff != "" {
				t.Errorf("raised (-want +got):\n%s", diff)
			}
			if string(have.Raw) != tc.have {
				t.Error("what it was given has changed")
			}
		})
	}
}

func TestPatchesResources(t *testing.T) {
	tests := map[string]bool{
		`{}`: false,
		`{"metadata":{"labels":{"pool":"spot"}},"spec":{"priorityClassName":"low"}}`:                           false,
		`{"spec":{"containers":[{"name":"main","image":"b","env":[{"name":"A","value":"resources"}]}]}}`:       false,
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`:                       true,
		`{"spec":{"initContainers":[{"name":"side","resources":null}]}}`:                                       true,
		`{"spec":{"resources":{"requests":{"cpu":"2"}}}}`:                                                      true,
		`{"spec":{"containers":[{"name":"main","image":"b","$patch":"replace"}]}}`:                             true,
		`{"spec":{"$patch":"replace","containers":[{"name":"main"}]}}`:                                         true,
		`{"spec":{"containers":[{"name":"main","$retainKeys":["name"]}],"$setElementOrder/containers":["a"]}}`: true,
		`[]`: true,
	}
	for patch, want := range tests {
		if got := PatchesResources(&runtime.RawExtension{Raw: []byte(patch)}); got != want {
			t.Errorf("%s: %t", patch, got)
		}
	}
	if !PatchesResources(nil) {
		t.Error("nothing to read")
	}
}

// canonical encodes JSON as a patched template is.
func canonical(t *testing.T, raw string) string {
	t.Helper()
	var value map[string]any
	if err := utiljson.Unmarshal([]byte(raw), &value); err != nil { // keeps integers exact
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
