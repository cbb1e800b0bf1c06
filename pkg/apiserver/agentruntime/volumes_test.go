// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// volumesOf are the volumes of a cluster that has one and, if it has a UID, the claim
// team-a/data. reads counts what is asked.
func volumesOf(t *testing.T, pv *corev1.PersistentVolume, claim types.UID) (volumes *Volumes, reads *atomic.Int64) {
	t.Helper()
	reads = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		reads.Add(1)
		w.Header().Set("Content-Type", "application/json")
		var answer any = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404}
		switch {
		case strings.HasSuffix(req.URL.Path, "/persistentvolumes/data"):
			pv.TypeMeta = metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"}
			answer = pv
		case claim != "" && strings.HasSuffix(req.URL.Path, "/team-a/persistentvolumeclaims/data"):
			answer = &corev1.PersistentVolumeClaim{
				TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{UID: claim},
			}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(answer) // the client sees what is missing
	}))
	t.Cleanup(server.Close)
	return NewVolumes(corev1client.NewForConfigOrDie(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})), reads
}

func mounting(names ...string) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a"}}
	for _, name := range names {
		claim.Spec.DynamicVolumesMount = append(claim.Spec.DynamicVolumesMount, v1alpha1.CSIMountConfig{PvName: name, MountPath: "/" + name})
	}
	return claim
}

// A volume that names a claim which is gone, also where another has its name now,
// has no owner.
func TestVolumesOfEarlierClaims(t *testing.T) {
	for name, test := range map[string]struct {
		phase corev1.PersistentVolumePhase
		claim types.UID
		want  bool
	}{
		"bound":                       {corev1.VolumeBound, "claim-uid", true},
		"released":                    {corev1.VolumeReleased, "claim-uid", false},
		"its claim is gone":           {corev1.VolumeBound, "", false},
		"another claim has that name": {corev1.VolumeBound, "other-uid", false},
	} {
		volumes, _ := volumesOf(t, persistentVolume(func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team-a", Name: "data", UID: "claim-uid"}
			pv.Status.Phase = test.phase
		}), test.claim)
		wrong, err := volumes.Check(t.Context(), mounting("data"))
		if err != nil || (len(wrong) == 0) != test.want {
			t.Errorf("%s: got %v, %v", name, wrong, err)
		}
	}
}

// What may not be mounted costs one read, whether it is there or not, and is the last that
// is looked at.
func TestVolumesThatAreAbsentAreRemembered(t *testing.T) {
	for _, name := range []string{"data", "missing"} {
		volumes, reads := volumesOf(t, persistentVolume(nil), "")
		for range 3 {
			wrong, err := volumes.Check(t.Context(), mounting(name, "second", "third"))
			if err != nil || len(wrong) != 1 {
				t.Fatalf("%s: got %v, %v", name, wrong, err)
			}
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("%s: %d reads", name, n)
		}
	}
}
