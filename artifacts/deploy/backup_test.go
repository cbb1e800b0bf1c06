// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	apiserverapp "github.com/sandlot-io/sandlot/pkg/apiserver/app"
	backupapp "github.com/sandlot-io/sandlot/pkg/backup/app"
	"github.com/sandlot-io/sandlot/pkg/backup/restore"
)

const (
	backupName  = "sandlot-backup"
	restoreName = "sandlot-restore"
	// bucket is an overlay of a user's who keeps backups in a bucket.
	bucket = "backup-s3"
)

// backupPolicies are the NetworkPolicies of the component.
var backupPolicies = []string{backupName, restoreName, "sandlot-restore-members"}

// stores are the workloads that run the store of an overlay that has backups.
var stores = map[string]string{"default": "sandlot-etcd", "single": "sandlot-apiserver"}

func eachBackup(t *testing.T, test func(t *testing.T, objects manifests, store workload)) {
	for overlay, store := range stores {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			objects := render(t, overlay)
			test(t, objects, workloads(objects)[store])
		})
		t.Run(overlay+" with a bucket", func(t *testing.T) {
			t.Parallel()
			objects := renderWith(t, overlay, bucket)
			test(t, objects, workloads(objects)[store])
		})
	}
}

// An etcd of the user may hold what is not ours: it is neither read nor replaced.
func TestExternalEtcdHasNoBackups(t *testing.T) {
	objects := render(t, "external-etcd")
	if jobs := of[*batchv1.CronJob](objects); len(jobs) > 0 {
		t.Errorf("there are CronJobs: %v", jobs)
	}
	if arguments := args(t, objects, workloads(objects)["sandlot-apiserver"]); slices.ContainsFunc(arguments, isSnapshotFlag) {
		t.Errorf("the API server gives snapshots: %q", arguments)
	}
}

func isSnapshotFlag(arg string) bool { return strings.HasPrefix(arg, "--serve-snapshots") }

// TestBackupJobs holds the CronJobs against the commands that they run.
func TestBackupJobs(t *testing.T) {
	eachBackup(t, func(t *testing.T, objects manifests, store workload) {
		for name, cmd := range map[string]*cobra.Command{backupName: backupapp.NewBackupCommand(), restoreName: backupapp.NewRestoreCommand()} {
			job := get[*batchv1.CronJob](objects, name)
			if job == nil {
				t.Fatalf("no CronJob %s", name)
			}
			spec := job.Spec.JobTemplate.Spec.Template.Spec
			container := spec.Containers[0]
			checkContainer(t, name, container)
			checkFailures(t, name, job.Spec.JobTemplate.Spec.PodFailurePolicy, container)
			if container.Args[0] != cmd.Name() {
				t.Errorf("%s runs %q", name, container.Args)
			}
			values := parse(t, cmd, container.Args[1:])
			if suspended := job.Spec.Suspend != nil && *job.Spec.Suspend; suspended != (name == restoreName) {
				t.Errorf("%s: suspended is %t", name, suspended)
			}
			if account := get[*corev1.ServiceAccount](objects, spec.ServiceAccountName); account == nil || account.Name != name {
				t.Errorf("%s runs as %q", name, spec.ServiceAccountName)
			}
			for _, mount := range container.VolumeMounts {
				if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
					t.Errorf("%s: no volume %s", name, mount.Name)
				}
			}
			checkTarget(t, objects, spec, values["target"])
			if name == restoreName {
				checkRestore(t, objects, store, values)
			}
		}
		server := workloads(objects)["sandlot-apiserver"]
		if values := parse(t, apiserverapp.NewCommand(), args(t, objects, server)); values["serve-snapshots"] != "true" {
			t.Error("the API server gives no snapshots")
		}
	})
}

// checkFailures: a backup of a store that breaks invariants is not taken again at once. A restore
// continues whatever happens, also when its node is lost, which a Job with a policy would wait for.
func checkFailures(t *testing.T, name string, policy *batchv1.PodFailurePolicy, container corev1.Container) {
	t.Helper()
	if name == restoreName {
		if policy != nil {
			t.Errorf("%s has a policy of failures", name)
		}
		return
	}
	if policy == nil || len(policy.Rules) != 1 || policy.Rules[0].Action != batchv1.PodFailurePolicyActionFailJob ||
		*policy.Rules[0].OnExitCodes.ContainerName != container.Name || !slices.Equal(policy.Rules[0].OnExitCodes.Values, []int32{backupapp.ExitBreach}) {
		t.Errorf("%s: which failures end it is said by %+v", name, policy)
	}
}

// checkTarget: backups are on a volume that is there, or where a Secret says.
func checkTarget(t *testing.T, objects manifests, spec corev1.PodSpec, target string) {
	t.Helper()
	if target == "$(target)" {
		from := spec.Containers[0].EnvFrom
		if len(from) != 1 || from[0].SecretRef == nil || get[*corev1.PersistentVolumeClaim](objects, backupName) != nil {
			t.Errorf("the target is from %v, and there is a volume", from)
		}
		return
	}
	claim := get[*corev1.PersistentVolumeClaim](objects, backupName)
	for _, mount := range spec.Containers[0].VolumeMounts {
		for _, volume := range spec.Volumes {
			if mount.MountPath == target && volume.Name == mount.Name && volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim.Name {
				return
			}
		}
	}
	t.Errorf("the target %q is on no volume that is there", target)
}

// checkRestore: the restore knows the store and what uses it, and may scale these and nothing
// else.
func checkRestore(t *testing.T, objects manifests, store workload, values map[string]string) {
	t.Helper()
	if want := "statefulset/" + store.GetName(); values["store"] != want || values["members"] != strconv.Itoa(int(store.replicas)) {
		t.Errorf("the store is %s of %s, want %s of %d", values["store"], values["members"], want, store.replicas)
	}
	var users []string
	for name := range workloads(objects) {
		if name != store.GetName() {
			users = append(users, "deployment/"+name)
		}
	}
	slices.Sort(users) // API servers before controllers
	if diff := cmp.Diff(users, strings.Split(values["users"], ",")); diff != "" {
		t.Errorf("what uses the store (-want +got):\n%s", diff)
	}
	may := map[string][]string{}
	for _, rule := range get[*rbacv1.Role](objects, restoreName).Rules {
		for _, resource := range rule.Resources {
			may[resource] = append(may[resource], rule.ResourceNames...)
		}
		if len(rule.ResourceNames) == 0 && !cmp.Equal(rule.Resources, []string{"pods"}) {
			t.Errorf("the restore may %v all %v", rule.Verbs, rule.Resources)
		}
	}
	for _, scaled := range append(users, values["store"]) {
		kind, name, _ := strings.Cut(scaled, "/")
		if !slices.Contains(may[kind+"s/scale"], name) {
			t.Errorf("the restore may not scale %s", scaled)
		}
	}
	if !slices.Contains(may["secrets"], restore.SecretName) || !slices.Contains(may["secrets"], restore.EncryptionSecret) {
		t.Errorf("the restore may use Secrets %v", may["secrets"])
	}
}

// TestMembersRestore: what prepares the data of a member knows of it what the member does.
func TestMembersRestore(t *testing.T) {
	eachBackup(t, func(t *testing.T, objects manifests, store workload) {
		inits := store.template.Spec.InitContainers
		if len(inits) != 1 || inits[0].Name != restore.MemberContainer {
			t.Fatalf("init containers are %v", inits)
		}
		own := store
		own.template.Spec.Containers = inits
		arguments := args(t, objects, own)
		root := backupapp.NewRestoreCommand()
		cmd, rest, err := root.Find(arguments[1:])
		if err != nil || arguments[0] != root.Name() || cmd == root {
			t.Fatalf("it runs %q: %v", arguments, err)
		}
		values, served := parse(t, cmd, rest), given(args(t, objects, store))
		for _, flag := range []string{"name", "data-dir", "initial-cluster", "initial-advertise-peer-urls", "embedded-etcd-dir"} {
			if values[flag] != served[flag] {
				t.Errorf("--%s is %q, and %q of the member", flag, values[flag], served[flag])
			}
		}
		service := get[*corev1.Service](objects, restoreName)
		if want := "https://" + service.Name + "." + namespace + ".svc:8443"; values["from"] != want || service.Spec.Ports[0].Port != 8443 {
			t.Errorf("it fetches from %s, want %s", values["from"], want)
		}
		for _, mount := range inits[0].VolumeMounts {
			i := slices.IndexFunc(store.template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			switch {
			case mount.MountPath == values["secret-dir"]:
				secret := store.template.Spec.Volumes[i].Secret
				if secret.SecretName != restore.SecretName || secret.Optional == nil || !*secret.Optional || len(secret.Items) != 4 {
					t.Errorf("it reads %+v", secret)
				}
			case i >= 0 || !slices.ContainsFunc(store.template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, mount) }):
				t.Errorf("%s is not the volume of the data", mount.Name)
			}
		}
		if secret := get[*corev1.Secret](objects, restore.SecretName); secret == nil || len(secret.Data)+len(secret.StringData) > 0 {
			t.Errorf("Secret %s is %v", restore.SecretName, secret)
		}
	})
}

// TestRestoreNetwork: only the store reaches the restore, and the backup reaches the API server.
func TestRestoreNetwork(t *testing.T) {
	eachBackup(t, func(t *testing.T, objects manifests, store workload) {
		pods := map[string]map[string]string{}
		for _, job := range of[*batchv1.CronJob](objects) {
			pods[job.Name] = job.Spec.JobTemplate.Spec.Template.Labels
		}
		for name, w := range workloads(objects) {
			if service := get[*corev1.Service](objects, name); service != nil {
				for job, labels := range pods {
					if selects(service.Spec.Selector, labels) {
						t.Errorf("Service %s has the pods of %s", name, job)
					}
				}
			}
			if selects(get[*corev1.Service](objects, restoreName).Spec.Selector, w.template.Labels) {
				t.Errorf("Service %s has the pods of %s", restoreName, name)
			}
		}
		policy := func(name string) networkingv1.NetworkPolicySpec {
			return get[*networkingv1.NetworkPolicy](objects, name).Spec
		}
		for what, ok := range map[string]bool{
			"the policy of the backup is its own":  selects(policy(backupName).PodSelector.MatchLabels, pods[backupName]),
			"the policy of the restore is its own": selects(policy(restoreName).PodSelector.MatchLabels, pods[restoreName]),
			"the policy of members is the store's": selects(policy(backupPolicies[2]).PodSelector.MatchLabels, store.template.Labels),
			"the backup reaches the API server":    selects(policy(backupName).Egress[0].To[0].PodSelector.MatchLabels, workloads(objects)["sandlot-apiserver"].template.Labels),
			"the store reaches the restore":        selects(policy(restoreName).Ingress[0].From[0].PodSelector.MatchLabels, store.template.Labels),
			"members reach the restore":            selects(policy(backupPolicies[2]).Egress[0].To[0].PodSelector.MatchLabels, pods[restoreName]),
			"nothing else reaches the restore":     len(policy(restoreName).Ingress) == 1 && len(policy(restoreName).Ingress[0].From) == 1,
			"nothing reaches the backup":           len(policy(backupName).Ingress) == 0,
			"the Service of the restore has pods":  selects(get[*corev1.Service](objects, restoreName).Spec.Selector, pods[restoreName]),
		} {
			if !ok {
				t.Errorf("not so: %s", what)
			}
		}
	})
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// TestStopped: no API server runs, and all else does.
func TestStopped(t *testing.T) {
	for overlay := range stores {
		objects := renderWith(t, overlay, "stopped")
		for name, w := range workloads(objects) {
			if stopped := w.replicas == 0; stopped != (name == "sandlot-apiserver") {
				t.Errorf("%s: %s has %d replicas", overlay, name, w.replicas)
			}
		}
	}
}
