// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"

	apiserverapp "github.com/sandlot-io/sandlot/pkg/apiserver/app"
	backupapp "github.com/sandlot-io/sandlot/pkg/backup/app"
	gatewayapp "github.com/sandlot-io/sandlot/pkg/gateway/app"
	"github.com/sandlot-io/sandlot/pkg/manager"
)

// everything is all that can be turned on.
const everything = `
gateway: {enabled: true, domain: sandboxes.example.com}
agentSandbox: {enabled: true}
restricted: {enabled: true}
dryRuns: {enabled: true}
metrics: {monitors: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}
`

// modes of etcd that need no other value.
var modes = []string{"cluster", "embedded"}

// pods are those of workloads, of jobs and of "helm test", by name.
func pods(objects manifests) map[string]corev1.PodSpec {
	all := map[string]corev1.PodSpec{}
	for name, w := range workloads(objects) {
		all[name] = w.template.Spec
	}
	for _, job := range of[*batchv1.CronJob](objects) {
		all[job.Name] = job.Spec.JobTemplate.Spec.Template.Spec
	}
	for _, pod := range of[*corev1.Pod](objects) {
		all[pod.Name] = pod.Spec
	}
	return all
}

// renderAll renders the chart with "helm test", with everything on top of values.
func renderAll(t *testing.T, mode, values string) manifests {
	t.Helper()
	objects := decode(t, "the chart", template(t, namespace, []string{everything, values}, "--set", "etcd.mode="+mode))
	if n := len(pods(objects)); n < 6 {
		t.Fatalf("%d programs", n)
	}
	return objects
}

// TestChartLint: Helm has no complaint.
func TestChartLint(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{
		"nothing":    "",
		"everything": everything,
		"embedded":   valuesOf["single"],
		"small":      valuesOf["small"],
		"external":   valuesOf["external-etcd"],
		"openshift":  "podSecurityContext: {fixedUser: false}\n",
		"stopped":    "stopped: true\n",
	} {
		if out, err := helm(t, []string{values}, "lint", "--strict", chart); err != nil || !bytes.Contains(out, []byte("1 chart(s) linted, 0 chart(s) failed")) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestChartRefuses values that are wrong, and says which.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"apiserver: {replicas: 3}":                              "additional properties 'apiserver' not allowed",
		"apiServer: {replicas: 0}":                              "/apiServer/replicas",
		"apiServer: {replicas: two}":                            "/apiServer/replicas",
		"apiServer: {resources: {cpu: 1}}":                      "/apiServer/resources",
		"apiServer: {extraArgs: [v=4]}":                         "/apiServer/extraArgs/0",
		"apiServer: {image: {tag: latest}}":                     "/apiServer/image/tag",
		"apiServer: {image: {digest: \"0123\"}}":                "/apiServer/image/digest",
		"apiServer: {image: {repository: \"a/b:v1\"}}":          "/apiServer/image/repository",
		"etcd: {mode: single}":                                  "/etcd/mode",
		"etcd: {mode: external}":                                "/etcd/external/endpoints",
		"etcd: {mode: embedded}\napiServer: {replicas: 2}":      "/apiServer/replicas",
		"etcd: {external: {endpoints: [\"http://a:2379\"]}}":    "/etcd/external/endpoints/0",
		"etcd: {storage: {size: twenty}}":                       "/etcd/storage/size",
		"backup: {target: nfs}":                                 "/backup/target",
		"backup: {schedule: hourly}":                            "/backup/schedule",
		"profile: tiny":                                         "/profile",
		"image: {pullPolicy: Sometimes}":                        "/image/pullPolicy",
		"image: {pullSecrets: [registry]}":                      "/image/pullSecrets/0",
		"networkPolicy: {ingressCIDRs: [10.0.0.1]}":             "/networkPolicy/ingressCIDRs/0",
		"networkPolicy: {extraEgressPorts: [https]}":            "/networkPolicy/extraEgressPorts/0",
		"gateway: {enabled: \"yes\"}":                           "/gateway/enabled",
		"podSecurityContext: {runAsUser: 1000}":                 "additional properties 'runAsUser' not allowed",
		"metrics: {monitors: {interval: often}}":                "/metrics/monitors/interval",
		"commonLabels: {team: 7}":                               "/commonLabels/team",
		"etcd: {mode: embedded, storage: {class: \"default\"}}": "additional properties 'class' not allowed",
	} {
		checkRefused(t, says, values)
	}
}

// TestChartRefusesContradictions: values that are right by themselves, and not with each
// other.
func TestChartRefusesContradictions(t *testing.T) {
	t.Parallel()
	const (
		profile = "profile: small\n"
		s3      = "backup: {target: s3}\n"
	)
	checkRefused(t, "there are no backups of an external etcd", valuesOf["external-etcd"], s3)
	checkRefused(t, "nor with the profile small", valuesOf["small"], s3)
	checkRefused(t, "set etcd.mode=embedded", profile)
	checkRefused(t, "set etcd.mode=embedded", profile, valuesOf["external-etcd"])
	for _, of := range []string{"single", "external-etcd"} {
		checkRefused(t, "etcd.extraArgs: it is for the pods of etcd.mode=cluster", valuesOf[of], "etcd: {extraArgs: [--quota-backend-bytes=7]}\n")
		checkRefused(t, "etcd.resources: it is for", valuesOf[of], "etcd: {resources: {limits: {memory: 8Gi}}}\n")
		checkRefused(t, "etcd.nodeSelector: it is for", valuesOf[of], "etcd: {nodeSelector: {disk: fast}}\n")
	}
	checkRefused(t, "one controller manager", valuesOf["small"], "controllerManager: {replicas: 2}\n")
	checkRefused(t, "needs gateway.domain", "gateway: {enabled: true}\nmetrics: {monitors: {enabled: true}}\n")
	// What has no effect now may stay.
	template(t, namespace, []string{s3, "backup: {enabled: false}\n"})
}

// checkRefused: the chart refuses the values, and says why.
func checkRefused(t *testing.T, why string, values ...string) {
	t.Helper()
	_, err := helm(t, values, "template", "sandlot", chart)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%q: got %v, want %q", values, err, why)
	}
}

// TestChartOnOpenShift: where users are the cluster's to choose, none is named, and pods are
// as restricted as ever.
func TestChartOnOpenShift(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		documents := template(t, namespace, []string{everything, "podSecurityContext: {fixedUser: false}\n"}, "--set", "etcd.mode="+mode)
		for _, field := range []string{"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"} {
			if bytes.Contains(documents, []byte(field)) {
				t.Errorf("%s: %s is set", mode, field)
			}
		}
		for name, pod := range pods(decode(t, "the chart", documents)) {
			if c := pod.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.SeccompProfile == nil {
				t.Errorf("%s: %s has the security context %v", mode, name, c)
			}
		}
	}
}

// TestChartPullSecrets reach all pods and all service accounts.
func TestChartPullSecrets(t *testing.T) {
	t.Parallel()
	want := []corev1.LocalObjectReference{{Name: "mirror"}}
	for _, mode := range modes {
		objects := renderAll(t, mode, "image: {pullSecrets: [{name: mirror}]}\n")
		for name, pod := range pods(objects) {
			if !cmp.Equal(pod.ImagePullSecrets, want) {
				t.Errorf("%s: pods of %s have %v", mode, name, pod.ImagePullSecrets)
			}
		}
		for _, account := range of[*corev1.ServiceAccount](objects) {
			if !cmp.Equal(account.ImagePullSecrets, want) {
				t.Errorf("%s: ServiceAccount %s has %v", mode, account.Name, account.ImagePullSecrets)
			}
		}
	}
}

// TestChartImages: what an image is called, and that nothing runs under a tag that moves.
func TestChartImages(t *testing.T) {
	t.Parallel()
	version := installVersion(t)
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	objects := renderAll(t, "cluster", `
image: {registry: mirror.example:5000/team, pullPolicy: Always}
apiServer: {image: {digest: "`+digest+`", tag: v9}}
controllerManager: {image: {tag: v9}}
gateway: {image: {repository: other.example/gateway}}
backup: {image: {repository: saver}}
test: {image: {repository: tool}}
`)
	found := map[string]string{}
	for name, pod := range pods(objects) {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			found[name+"/"+c.Name] = c.Image
			if c.ImagePullPolicy != corev1.PullAlways {
				t.Errorf("%s is pulled %s", name, c.ImagePullPolicy)
			}
		}
	}
	want := map[string]string{
		"sandlot-apiserver/sandlot-apiserver":                   "mirror.example:5000/team/sandlot-apiserver@" + digest,
		"sandlot-controller-manager/sandlot-controller-manager": "mirror.example:5000/team/sandlot-controller-manager:v9",
		gatewayName + "/" + gatewayName:                         "other.example/gateway:" + version,
		"sandlot-etcd/etcd":                                     "mirror.example:5000/team/sandlot-etcd:" + version,
		"sandlot-etcd/restore":                                  "mirror.example:5000/team/saver:" + version,
		"sandlot-backup/backup":                                 "mirror.example:5000/team/saver:" + version,
		"sandlot-restore/restore":                               "mirror.example:5000/team/saver:" + version,
		"sandlot-test/check":                                    "mirror.example:5000/team/tool:" + version,
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("what runs: -want +got\n%s", diff)
	}
}

// TestChartPlacement: values of a program come before those of all.
func TestChartPlacement(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", `
nodeSelector: {pool: system}
tolerations: [{key: system, operator: Exists}]
priorityClass: {enabled: false}
apiServer:
  replicas: 3
  nodeSelector: {pool: api}
  tolerations: [{key: api, operator: Exists}]
  affinity: {nodeAffinity: {}}
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
  resources: {requests: {cpu: "3"}}
  podLabels: {team: a}
  podAnnotations: {note: b}
commonLabels: {owner: platform}
commonAnnotations: {contact: platform}
etcd: {storage: {size: 3Gi, className: fast}}
backup: {storage: {size: 4Gi}, schedule: "7 7 * * *", extraArgs: [--keep=3]}
`)
	for name, pod := range pods(objects) {
		want := "system"
		if name == "sandlot-apiserver" {
			want = "api"
		}
		if pod.NodeSelector["pool"] != want || len(pod.Tolerations) != 1 || pod.Tolerations[0].Key != want {
			t.Errorf("%s is for %v and tolerates %v", name, pod.NodeSelector, pod.Tolerations)
		}
		if pod.PriorityClassName != "" {
			t.Errorf("%s has the PriorityClass %s", name, pod.PriorityClassName)
		}
	}
	if classes := of[*schedulingv1.PriorityClass](objects); len(classes) > 0 {
		t.Errorf("there is PriorityClass %s", classes[0].Name)
	}
	w := workloads(objects)["sandlot-apiserver"]
	pod := w.template
	if w.replicas != 3 || pod.Labels["team"] != "a" || pod.Annotations["note"] != "b" || pod.Spec.Affinity.PodAntiAffinity != nil ||
		len(pod.Spec.TopologySpreadConstraints) != 1 || pod.Spec.TopologySpreadConstraints[0].MaxSkew != 2 ||
		pod.Spec.Containers[0].Resources.Requests.Cpu().Value() != 3 || !pod.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
		t.Errorf("%s has %d replicas of %v", w, w.replicas, pod)
	}
	if pod.Labels["owner"] != "" {
		t.Error("pods have the labels of objects, which replaces them when those change")
	}
	for _, object := range objects {
		if object.GetLabels()["owner"] != "platform" || object.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("%T %s has the labels %v", object, object.GetName(), object.GetLabels())
		}
		if _, hook := object.GetAnnotations()["helm.sh/hook"]; !hook && object.GetAnnotations()["contact"] != "platform" {
			t.Errorf("%T %s has the annotations %v", object, object.GetName(), object.GetAnnotations())
		}
	}
	claim := get[*appsv1.StatefulSet](objects, "sandlot-etcd").Spec.VolumeClaimTemplates[0].Spec
	if claim.Resources.Requests.Storage().String() != "3Gi" || claim.StorageClassName == nil || *claim.StorageClassName != "fast" {
		t.Errorf("etcd has the volume %v", claim)
	}
	backups := get[*corev1.PersistentVolumeClaim](objects, "sandlot-backup")
	if backups.Spec.Resources.Requests.Storage().String() != "4Gi" || backups.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("backups have the volume %v", backups)
	}
	job := get[*batchv1.CronJob](objects, "sandlot-backup").Spec
	if args := job.JobTemplate.Spec.Template.Spec.Containers[0].Args; job.Schedule != "7 7 * * *" || args[len(args)-1] != "--keep=3" {
		t.Errorf("backups are taken %s by %v", job.Schedule, args)
	}
}

// TestChartWithoutBackups: nothing of them is left.
func TestChartWithoutBackups(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		objects := renderChart(t, namespace, "backup: {enabled: false}\netcd: {mode: "+mode+"}\n")
		text, err := yaml.Marshal(byName(t, objects))
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{"CronJob", "PersistentVolumeClaim ", "sandlot-restore", "--serve-snapshots"} {
			if bytes.Contains(text, []byte(of)) {
				t.Errorf("%s: there is %s", mode, of)
			}
		}
	}
}

// TestChartValues: values.yaml has each value that values.schema.json knows. Helm itself refuses
// one that the schema does not know.
func TestChartValues(t *testing.T) {
	t.Parallel()
	var schema, values map[string]any
	for file, content := range map[string]*map[string]any{"values.schema.json": &schema, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join(chart, file))
		if err == nil {
			err = yaml.UnmarshalStrict(text, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var check func(path string, schema, values map[string]any)
	check = func(path string, of, values map[string]any) {
		properties, _ := of["properties"].(map[string]any)
		for name, property := range properties {
			value, ok := values[name]
			if !ok && name != "global" { // which is Helm's
				t.Errorf("values.yaml has no %s%s", path, name)
			}
			property := property.(map[string]any)
			if ref, ok := property["$ref"].(string); ok {
				property = schema["definitions"].(map[string]any)[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
			}
			if below, _ := value.(map[string]any); len(below) > 0 {
				check(path+name+".", property, below)
			}
		}
	}
	check("", schema, values)
}

// TestChartStopped: no API server runs, however many there are otherwise.
func TestChartStopped(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for name, w := range workloads(renderAll(t, mode, "stopped: true\napiServer: {replicas: 1}\n")) {
			if is := w.replicas == 0; is != (name == "sandlot-apiserver") {
				t.Errorf("%s: %s has %d replicas", mode, name, w.replicas)
			}
		}
	}
}

// TestChartEncryptedBackups: what docs/operations.md says of them, of another --etcd-prefix
// and of credentials by a cloud reaches backups and restores.
func TestChartEncryptedBackups(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", `
commonAnnotations: {contact: platform}
apiServer: {extraArgs: [--etcd-prefix=/team]}
backup:
  commonArgs: [--identity-file=/etc/age/key.txt, --etcd-prefix=/team]
  extraArgs: [--keep=28]
  extraVolumes: [{name: age, secret: {secretName: age}}]
  extraVolumeMounts: [{name: age, mountPath: /etc/age, readOnly: true}]
  serviceAccountAnnotations: {backup: {role: writer}, restore: {role: reader}}
`)
	for name, want := range map[string]struct {
		cmd  *cobra.Command
		role string
	}{
		backupName:  {backupapp.NewBackupCommand(), "writer"},
		restoreName: {backupapp.NewRestoreCommand(), "reader"},
	} {
		pod := pods(objects)[name]
		values := parse(t, want.cmd, pod.Containers[0].Args[1:])
		if values["identity-file"] != "/etc/age/key.txt" || values["etcd-prefix"] != "/team" || values["keep"] != map[string]string{backupName: "28"}[name] {
			t.Errorf("%s has the flags %v", name, values)
		}
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "age" && m.MountPath == "/etc/age" })
		if !mounted || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "age" && v.Secret != nil }) {
			t.Errorf("%s has the volumes %v, and mounts %v", name, pod.Volumes, pod.Containers[0].VolumeMounts)
		}
		if account := get[*corev1.ServiceAccount](objects, pod.ServiceAccountName); account.Annotations["role"] != want.role || account.Annotations["contact"] != "platform" {
			t.Errorf("%s runs as %s with the annotations %v", name, account.Name, account.Annotations)
		}
	}
}

// TestChartBackupSecret: where the bucket is, is in a Secret of the user's, for backups and
// for restores. With a closed network, the bucket is where that may be reached.
func TestChartBackupSecret(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", "backup: {target: s3, s3: {secretName: bucket}}\nnetworkPolicy: {egressCIDRs: [192.0.2.0/28]}\n")
	for _, name := range []string{"sandlot-backup", "sandlot-restore"} {
		from := pods(objects)[name].Containers[0].EnvFrom
		if len(from) != 1 || from[0].SecretRef == nil || from[0].SecretRef.Name != "bucket" {
			t.Errorf("%s has the environment of %v", name, from)
		}
	}
	for _, rule := range get[*networkingv1.NetworkPolicy](objects, "sandlot-backup").Spec.Egress {
		if len(rule.To) == 0 && len(rule.Ports) == 0 {
			t.Error("backups may go anywhere")
		}
	}
}

// TestChartArguments: what is added comes last, where it replaces, and the programs take it.
func TestChartArguments(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", `
apiServer:
  extraArgs: [--shutdown-delay-duration=7s, --audit-policy-file=/etc/audit/policy.yaml]
  extraVolumes: [{name: audit, configMap: {name: audit}}]
  extraVolumeMounts: [{name: audit, mountPath: /etc/audit}]
controllerManager: {extraArgs: [--v=7]}
gateway: {extraArgs: [--v=7]}
etcd: {extraArgs: [--quota-backend-bytes=7]}
`)
	all := workloads(objects)
	apiServer := all["sandlot-apiserver"]
	values := parse(t, apiserverapp.NewCommand(), args(t, objects, apiServer))
	checkFiles(t, apiServer, values, "audit-policy-file")
	if got := values["shutdown-delay-duration"]; got != "7s" {
		t.Errorf("--shutdown-delay-duration=%s", got)
	}
	if got := parse(t, manager.NewCommand(), args(t, objects, all["sandlot-controller-manager"]))["v"]; got != "7" {
		t.Errorf("the controllers have --v=%s", got)
	}
	if got := parse(t, gatewayapp.NewCommand(), args(t, objects, all[gatewayName])); got["v"] != "7" || got["domain"] != "sandboxes.example.com" {
		t.Errorf("the gateway has %v", got)
	}
	if got := given(args(t, objects, all["sandlot-etcd"]))["quota-backend-bytes"]; got != "7" {
		t.Errorf("etcd has --quota-backend-bytes=%s", got)
	}
}

// TestChartGateway: its Secret and its Service are the user's to say.
func TestChartGateway(t *testing.T) {
	t.Parallel()
	objects := renderAll(t, "cluster", "gateway: {tlsSecretName: mine, service: {type: LoadBalancer, annotations: {internal: \"true\"}}}\n")
	volumes := workloads(objects)[gatewayName].template.Spec.Volumes
	if i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "mine" }); i < 0 {
		t.Errorf("its volumes are %v", volumes)
	}
	service := get[*corev1.Service](objects, gatewayName)
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Annotations["internal"] != "true" {
		t.Errorf("its Service is %v", service)
	}
	if other := get[*corev1.Service](objects, "sandlot-apiserver"); other.Spec.Type != "" || other.Annotations["internal"] != "" {
		t.Errorf("the Service of the API server is %v", other)
	}
	keys := get[*corev1.Namespace](objects, keysNamespace)
	if keys == nil || keys.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("API keys are deleted with the release: %v", keys)
	}
}

// TestChartNetworks: policies can be left out, and can name the networks that ours cannot
// know. Then no rule is open to all.
func TestChartNetworks(t *testing.T) {
	t.Parallel()
	if policies := of[*networkingv1.NetworkPolicy](renderAll(t, "cluster", "networkPolicy: {enabled: false}\n")); len(policies) > 0 {
		t.Errorf("there is NetworkPolicy %s", policies[0].Name)
	}
	for _, mode := range modes {
		objects := renderAll(t, mode, `
networkPolicy:
  ingressCIDRs: [192.0.2.0/28]
  gatewayCIDRs: [198.51.100.0/24, "2001:db8::/32"]
  egressCIDRs: [192.0.2.0/28, 203.0.113.7/32]
`)
		blocks := func(peers []networkingv1.NetworkPolicyPeer) (found []string) {
			for _, peer := range peers {
				if peer.IPBlock != nil {
					found = append(found, peer.IPBlock.CIDR)
				}
			}
			return found
		}
		for _, policy := range of[*networkingv1.NetworkPolicy](objects) {
			var in, out []string
			for _, rule := range policy.Spec.Ingress {
				if len(rule.From) == 0 {
					t.Errorf("%s: NetworkPolicy %s lets everything in", mode, policy.Name)
				}
				in = append(in, blocks(rule.From)...)
			}
			for _, rule := range policy.Spec.Egress {
				if len(rule.To) == 0 && len(rule.Ports) == 0 {
					t.Errorf("%s: NetworkPolicy %s lets everything out", mode, policy.Name)
				}
				out = append(out, blocks(rule.To)...)
			}
			wantIn := map[string][]string{
				"sandlot-apiserver": {"192.0.2.0/28"},
				gatewayName:         {"198.51.100.0/24", "2001:db8::/32"},
			}[policy.Name]
			if !slices.Equal(in, wantIn) {
				t.Errorf("%s: NetworkPolicy %s lets in %v, want %v", mode, policy.Name, in, wantIn)
			}
			var wantOut []string
			if slices.Contains([]string{"sandlot-apiserver", "sandlot-controller-manager", gatewayName, "sandlot-restore", "sandlot-test"}, policy.Name) {
				wantOut = []string{"192.0.2.0/28", "203.0.113.7/32"}
			}
			if !slices.Equal(out, wantOut) {
				t.Errorf("%s: NetworkPolicy %s lets out to %v, want %v", mode, policy.Name, out, wantOut)
			}
		}
	}
}

// TestChartTest: what "helm test" runs is a hook, and so is the account that it has, which may
// do what a checker may.
func TestChartTest(t *testing.T) {
	t.Parallel()
	version := installVersion(t)
	objects := decode(t, "the chart", template(t, elsewhere, nil))
	var hooks manifests
	for _, object := range objects {
		if object.GetAnnotations()["helm.sh/hook"] == "test" {
			hooks = append(hooks, object)
		}
	}
	all := of[*corev1.Pod](hooks)
	if len(all) != 1 {
		t.Fatalf("%d pods are tests", len(all))
	}
	pod := all[0]
	if c := pod.Spec.Containers[0]; !slices.Equal(c.Args, []string{"check"}) || c.Command != nil || c.Image != "ghcr.io/sandlot-io/sandlot:"+version {
		t.Errorf("it runs %s %v %v", c.Image, c.Command, c.Args)
	}
	if account := get[*corev1.ServiceAccount](hooks, pod.Spec.ServiceAccountName); account == nil || pod.Namespace != elsewhere || account.Namespace != elsewhere {
		t.Errorf("it is %s of %s", pod.Spec.ServiceAccountName, pod.Namespace)
	}
	if own := rulesByRole(hooks); len(own) > 0 {
		t.Errorf("it has roles of its own: %v", own)
	}
	everywhere, there := of[*rbacv1.ClusterRoleBinding](hooks), of[*rbacv1.RoleBinding](hooks)
	if len(everywhere) != 1 || len(there) != 1 {
		t.Fatalf("it is bound by %v and %v", everywhere, there)
	}
	const checker = "sandlot-checker"
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: pod.Spec.ServiceAccountName, Namespace: elsewhere}}
	if b := everywhere[0]; b.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: checker}) ||
		!slices.Equal(b.Subjects, account) || get[*rbacv1.ClusterRole](objects, checker) == nil {
		t.Errorf("%v is bound to %v", b.RoleRef, b.Subjects)
	}
	if b := there[0]; b.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: checker}) || b.Namespace != elsewhere ||
		!slices.Equal(b.Subjects, account) || get[*rbacv1.Role](objects, checker) == nil {
		t.Errorf("%v in %s is bound to %v", b.RoleRef, b.Namespace, b.Subjects)
	}
}
