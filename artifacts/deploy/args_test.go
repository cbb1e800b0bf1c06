// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	apiserverapp "github.com/sandlot-io/sandlot/pkg/apiserver/app"
	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
	"github.com/sandlot-io/sandlot/pkg/manager"
)

// parse holds arguments against the real flags of a program and returns those
// that were given.
func parse(t *testing.T, cmd *cobra.Command, arguments []string) map[string]string {
	t.Helper()
	if err := cmd.ParseFlags(arguments); err != nil {
		t.Fatalf("%s %s: %v", cmd.Name(), strings.Join(arguments, " "), err)
	}
	if rest := cmd.Flags().Args(); len(rest) > 0 {
		t.Errorf("%s takes no arguments besides flags: %q", cmd.Name(), rest)
	}
	return given(arguments)
}

// given splits arguments of the form --flag=value.
func given(arguments []string) map[string]string {
	values := map[string]string{}
	for _, argument := range arguments {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		values[name] = value
	}
	return values
}

func TestAPIServerArguments(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		w := workloads(objects)["sandlot-apiserver"]
		values := parse(t, apiserverapp.NewCommand(), args(t, objects, w))
		if embedded, servers := values["embedded-etcd-dir"], values["etcd-servers"]; (embedded == "") == (servers == "") {
			t.Errorf("one of --embedded-etcd-dir and --etcd-servers must be given: %q, %q", embedded, servers)
		}
		checkEncryption(t, w, values)
		checkFiles(t, w, values, "tls-cert-file", "tls-private-key-file", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "embedded-etcd-dir")
		if _, ok := values["etcd-servers"]; !ok {
			return
		}
		for server := range strings.SplitSeq(values["etcd-servers"], ",") {
			if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Port() != "2379" {
				t.Errorf("--etcd-servers: %q is not https with the port of clients", server)
			}
		}
		for _, flag := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
			if values[flag] == "" {
				t.Errorf("--%s is missing: etcd is not to be talked to without TLS", flag)
			}
		}
	})
}

// checkEncryption makes sure that the store is encrypted with the keys that
// sandlot-controller-manager makes, and that the server takes up new ones.
func checkEncryption(t *testing.T, w workload, values map[string]string) {
	t.Helper()
	if values["encryption-provider-config-automatic-reload"] != "true" {
		t.Errorf("%s: new keys are not taken up", w)
	}
	dir, file := path.Split(values["encryption-provider-config"])
	if file != encryptionkeys.KeyConfig {
		t.Errorf("%s: --encryption-provider-config=%s, which is not in Secret %s", w, dir+file, encryptionkeys.Secret)
	}
	for _, mount := range w.template.Spec.Containers[0].VolumeMounts {
		for _, volume := range w.template.Spec.Volumes {
			if mount.MountPath == path.Clean(dir) && volume.Name == mount.Name && volume.Secret != nil && volume.Secret.SecretName == encryptionkeys.Secret {
				return
			}
		}
	}
	t.Errorf("%s: Secret %s is not mounted at %s", w, encryptionkeys.Secret, dir)
}

// checkFiles makes sure that files which flags name are on volumes, and that what
// comes from a Secret has a key that certificates have.
func checkFiles(t *testing.T, w workload, values map[string]string, flags ...string) {
	t.Helper()
	mounts := w.template.Spec.Containers[0].VolumeMounts
	for _, name := range flags {
		file, ok := values[name]
		if !ok {
			continue
		}
		i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") })
		if i < 0 {
			t.Errorf("%s: --%s=%s is on no volume", w, name, file)
			continue
		}
		secret := slices.ContainsFunc(w.template.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == mounts[i].Name && v.Secret != nil
		})
		if secret && !slices.Contains([]string{"ca.crt", "tls.crt", "tls.key"}, path.Base(file)) {
			t.Errorf("%s: --%s=%s: such a key is in no Secret of certificates", w, name, file)
		}
	}
}

func TestControllerManagerArguments(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		w := workloads(objects)["sandlot-controller-manager"]
		values := parse(t, manager.NewCommand(), args(t, objects, w))
		if w.replicas > 1 && values["leader-elect"] != "true" {
			t.Error("several replicas and no leader election")
		}
		for flag, port := range map[string]string{"metrics-bind-address": "metrics", "health-probe-bind-address": "health"} {
			if want := fmt.Sprintf(":%d", containerPort(t, w, port)); values[flag] != want {
				t.Errorf("--%s=%s, but the port %s is %s", flag, values[flag], port, want)
			}
		}
		// It follows the pod, wherever an overlay puts that.
		told := slices.ContainsFunc(w.template.Spec.Containers[0].Env, func(v corev1.EnvVar) bool {
			return v.Name == "POD_NAMESPACE" && v.ValueFrom != nil && v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.namespace"
		})
		for _, flag := range []string{"namespace", "leader-election-namespace", "certificates-namespace"} {
			if got, ok := values[flag]; ok || !told {
				t.Errorf("--%s=%s, POD_NAMESPACE by the downward API: %v", flag, got, told)
			}
		}
		if values["manage-encryption-keys"] != "true" {
			t.Error("the API servers wait for a Secret that is not made")
		}
		members := "0"
		if etcd, ok := workloads(objects)["sandlot-etcd"]; ok {
			members = fmt.Sprint(etcd.replicas)
		}
		if got, ok := values["certificates-etcd-members"]; members != "0" && got != members || members == "0" && ok {
			t.Errorf("certificates for %q members of etcd, of which there are %s", got, members)
		}
	})
}

func containerPort(t *testing.T, w workload, name string) int32 {
	t.Helper()
	for _, port := range w.template.Spec.Containers[0].Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	t.Fatalf("%s has no port %s", w, name)
	return 0
}

func TestEtcdArguments(t *testing.T) {
	objects := render(t, "default")
	w := workloads(objects)["sandlot-etcd"]
	cfg := embed.NewConfig()
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	cfg.AddFlags(flags)
	// This one is added by the program itself.
	flags.Func("initial-cluster-state", "", func(value string) error {
		cfg.ClusterState = value
		return nil
	})
	arguments := args(t, objects, w)
	if err := flags.Parse(arguments); err != nil || flags.NArg() > 0 {
		t.Fatalf("%v, left over: %q", err, flags.Args())
	}
	checkFiles(t, w, given(arguments), "data-dir", "trusted-ca-file", "cert-file", "key-file",
		"peer-trusted-ca-file", "peer-cert-file", "peer-key-file")
	if _, ok := given(arguments)["max-txn-ops"]; ok {
		t.Error("--max-txn-ops is set: claims are cut to what etcd takes by default")
	}
	if !cfg.ClientTLSInfo.ClientCertAuth || !cfg.PeerTLSInfo.ClientCertAuth {
		t.Error("etcd lets in clients or peers without a certificate")
	}

	// The members are named alike everywhere.
	members := strings.Split(cfg.InitialCluster, ",")
	servers := strings.Split(given(args(t, objects, workloads(objects)["sandlot-apiserver"]))["etcd-servers"], ",")
	if len(members) != int(w.replicas) || len(servers) != int(w.replicas) {
		t.Fatalf("%d replicas, %d members, %d servers", w.replicas, len(members), len(servers))
	}
	for i := range members {
		host := fmt.Sprintf("sandlot-etcd-%d.sandlot-etcd.%s.svc", i, namespace)
		if want := fmt.Sprintf("sandlot-etcd-%d=https://%s:2380", i, host); members[i] != want {
			t.Errorf("member %d is %s, want %s", i, members[i], want)
		}
		if want := fmt.Sprintf("https://%s:2379", host); servers[i] != want {
			t.Errorf("server %d is %s, want %s", i, servers[i], want)
		}
	}
	// What stands for the first member is in the list as it calls itself.
	self := cfg.Name + "=" + given(arguments)["initial-advertise-peer-urls"]
	if !slices.Contains(members, self) {
		t.Errorf("a member calls itself %s, which is not in %q", self, members)
	}
}

// TestRestricted: the component is for overlays of one's own, whatever they are made of.
func TestRestricted(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			own := t.TempDir()
			to, err := filepath.Rel(own, here)
			if err != nil {
				t.Fatal(err)
			}
			kustomization := fmt.Sprintf("resources: [%[1]s/%[2]s]\ncomponents: [%[1]s/components/restricted]\n", to, overlay)
			if err := os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
				t.Fatal(err)
			}
			objects := render(t, own)
			values := parse(t, apiserverapp.NewCommand(), args(t, objects, workloads(objects)["sandlot-apiserver"]))
			if got := values["claim-pod-metadata"]; got != apiserver.ClaimPodMetadataNone {
				t.Errorf("--claim-pod-metadata=%s", got)
			}
		})
	}
}
