// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestFlags(t *testing.T) {
	outsideCluster(t)
	cases := map[string]struct {
		args    []string
		wantErr string // empty: the options are good
	}{
		"alone, embedded etcd":         {args: []string{"--client-ca-file=ca", "--embedded-etcd-dir=d"}},
		"alone, etcd":                  {args: []string{"--client-ca-file=ca", "--etcd-servers=http://e:2379"}},
		"etcd with TLS":                {args: []string{"--client-ca-file=ca", "--etcd-servers=https://e:2379", "--etcd-cafile=a", "--etcd-certfile=b", "--etcd-keyfile=c"}},
		"encryption, audit":            {args: []string{"--client-ca-file=ca", "--embedded-etcd-dir=d", "--encryption-provider-config=e", "--audit-log-path=-"}},
		"with a cluster":               {args: []string{"--kubeconfig=k", "--etcd-servers=http://e:2379"}},
		"admission with a cluster":     {args: []string{"--kubeconfig=k", "--etcd-servers=http://e:2379", "--admission-control-config-file=a"}},
		"no etcd":                      {args: []string{"--kubeconfig=k"}, wantErr: "one of --etcd-servers and --embedded-etcd-dir is required"},
		"two etcds":                    {args: []string{"--kubeconfig=k", "--etcd-servers=http://e:2379", "--embedded-etcd-dir=d"}, wantErr: "exclude each other"},
		"resources apart":              {args: []string{"--kubeconfig=k", "--etcd-servers=http://e:2379", "--etcd-servers-overrides=a/b#http://f:2379"}, wantErr: "--etcd-servers-overrides is not supported"},
		"a quota":                      {args: []string{"--client-ca-file=ca", "--embedded-etcd-dir=d", "--embedded-etcd-quota-backend-bytes=1048576"}},
		"a negative quota":             {args: []string{"--client-ca-file=ca", "--embedded-etcd-dir=d", "--embedded-etcd-quota-backend-bytes=-1"}, wantErr: "--embedded-etcd-quota-backend-bytes must not be negative"},
		"a quota of another etcd":      {args: []string{"--kubeconfig=k", "--etcd-servers=http://e:2379", "--embedded-etcd-quota-backend-bytes=1"}, wantErr: "is of the etcd that --embedded-etcd-dir starts"},
		"no client could authenticate": {args: []string{"--embedded-etcd-dir=d"}, wantErr: "--client-ca-file is required"},
		"admission without a cluster":  {args: []string{"--client-ca-file=ca", "--embedded-etcd-dir=d", "--admission-control-config-file=a"}, wantErr: "--admission-control-config-file need a cluster"},
		"proxy without a cluster":      {args: []string{"--client-ca-file=ca", "--embedded-etcd-dir=d", "--requestheader-client-ca-file=a"}, wantErr: "--requestheader-client-ca-file needs a cluster"},
		"unknown admission plugin":     {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--disable-admission-plugins=x"}, wantErr: `plugin "x" is unknown`},
		"negative sync window":         {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--sync-window=-1s"}, wantErr: "--sync-window must be between"},
		"sync window beyond requests":  {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--sync-window=40s"}, wantErr: "--sync-window must be between"},
		"no metadata of claims":        {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--claim-pod-metadata=None"}},
		"some metadata of claims":      {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--claim-pod-metadata=some"}, wantErr: "--claim-pod-metadata must be Prefixed, All or None"},
		"no waiting":                   {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--sync-window=0"}},
		"least limits of claims":       {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--max-claim-timeout=1m", "--max-wait-ready-timeout=30s", "--max-claim-bytes=1048576", "--max-fresh-sandboxes=0"}},
		"claims cannot wait":           {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--max-claim-timeout=59s"}, wantErr: "--max-claim-timeout must be at least 1m0s"},
		"no time to be ready":          {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--max-wait-ready-timeout=29s"}, wantErr: "--max-wait-ready-timeout must be at least 30s"},
		"claims of no bytes":           {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--max-claim-bytes=1048575"}, wantErr: "--max-claim-bytes must be at least 1048576"},
		"negative fresh sandboxes":     {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--max-fresh-sandboxes=-1"}, wantErr: "--max-fresh-sandboxes must be between 0 and 10000"},
		"too many fresh sandboxes":     {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--max-fresh-sandboxes=10001"}, wantErr: "--max-fresh-sandboxes must be between 0 and 10000"},
		"port out of range":            {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--secure-port=99999"}, wantErr: "--secure-port"},
		"no port":                      {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--secure-port=0"}, wantErr: "--secure-port must not be 0"},
		"domains of labels":            {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--allowed-label-domains=a.example,b.example"}},
		"no domains of labels":         {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--allowed-label-domains="}},
		"a domain with a slash":        {args: []string{"--kubeconfig=k", "--embedded-etcd-dir=d", "--allowed-label-domains=a.example/"}, wantErr: "--allowed-label-domains"},
		"several mistakes":             {args: []string{"--secure-port=99999"}, wantErr: "--etcd-servers"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			err := o.Validate()
			if tc.wantErr == "" {
				if err != nil {
					t.Fatalf("unexpected error: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got %v, want an error with %q", err, tc.wantErr)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %v", err)
			}
		})
	}
}

func TestClaimObservationsReachTheServer(t *testing.T) {
	outsideCluster(t)
	for args, want := range map[string]bool{"": false, "--disable-claim-observability-annotations": true} {
		o := parse(t, strings.Fields("--client-ca-file=ca --embedded-etcd-dir=d "+args)...)
		if got := o.DisableClaimObservations; got != want {
			t.Errorf("%q disables them: %v", args, got)
		}
	}
}

func TestSyncWindowReachesTheServer(t *testing.T) {
	outsideCluster(t)
	if got := parse(t, "--sync-window=3s").SyncWindow; got != 3*time.Second {
		t.Errorf("got %s", got)
	}
	if got := parse(t).SyncWindow; got != 10*time.Second {
		t.Errorf("default %s, want 10s", got)
	}
}

func TestWaitingCreates(t *testing.T) {
	outsideCluster(t)
	for name, tc := range map[string]struct {
		args []string
		want int
	}{
		"alone":                  {want: 2000},
		"alone, with few at all": {args: []string{"--max-mutating-requests-inflight=20"}, want: 10},
		"in a cluster":           {args: []string{"--kubeconfig=a"}, want: 60},
		"in a cluster, with few at all": {
			args: []string{"--kubeconfig=a", "--max-mutating-requests-inflight=100", "--max-requests-inflight=20"}, want: 10,
		},
		"none to speak of": {args: []string{"--kubeconfig=a", "--max-mutating-requests-inflight=1", "--max-requests-inflight=1"}, want: 1},
		"said":             {args: []string{"--kubeconfig=a", "--max-waiting-creates=300"}, want: 300},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse(t, tc.args...).waitingCreates(); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestOneClusterForAll(t *testing.T) {
	outsideCluster(t)
	cases := map[string]struct {
		args                         []string
		core, authentication, author string
		alone                        bool
	}{
		"one for all":              {args: []string{"--kubeconfig=a"}, core: "a", authentication: "a", author: "a"},
		"only for authentication":  {args: []string{"--authentication-kubeconfig=a"}, core: "a", authentication: "a", author: "a"},
		"another for one of them":  {args: []string{"--kubeconfig=a", "--authorization-kubeconfig=b"}, core: "a", authentication: "a", author: "b"},
		"one for each":             {args: []string{"--kubeconfig=a", "--authentication-kubeconfig=b", "--authorization-kubeconfig=c"}, core: "a", authentication: "b", author: "c"},
		"none: outside of cluster": {alone: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...)
			got := [3]string{o.CoreAPI.CoreAPIKubeconfigPath, o.Authentication.RemoteKubeConfigFile, o.Authorization.RemoteKubeConfigFile}
			if want := [3]string{tc.core, tc.authentication, tc.author}; got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if o.hasCluster() == tc.alone {
				t.Errorf("has a cluster: %v", o.hasCluster())
			}
			o.Alone = true
			if o.hasCluster() {
				t.Error("Alone is not heeded")
			}
		})
	}
}

func TestConfigPortInUse(t *testing.T) {
	outsideCluster(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := parse(t, "--bind-address=127.0.0.1", "--secure-port="+port, "--client-ca-file=ca", "--etcd-servers=http://127.0.0.1:1")
	if _, err := o.Config(); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestConfigClosesThePort(t *testing.T) {
	outsideCluster(t)
	missing := filepath.Join(t.TempDir(), "missing")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	for range 2 { // the second needs the port of the first
		o := parse(t, "--bind-address=127.0.0.1", "--secure-port="+port, "--client-ca-file="+missing, "--etcd-servers=http://127.0.0.1:1")
		if _, err := o.Config(); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("got %v, want an error about %s", err, missing)
		}
	}
}

func TestWithoutUnknownPolicies(t *testing.T) {
	const mutating, validating = "mutatingadmissionpolicies", "validatingadmissionpolicies"
	cases := map[string]struct {
		served, enable, want []string
	}{
		"new cluster":  {served: []string{mutating, validating}},
		"old cluster":  {served: []string{validating}, want: []string{"MutatingAdmissionPolicy"}},
		"older still":  {want: []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}},
		"asked for it": {served: []string{validating}, enable: []string{"MutatingAdmissionPolicy"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			list := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1"}
			for _, resource := range tc.served {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource})
			}
			client := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{list}}}
			before := genericoptions.AdmissionOptions{EnablePlugins: tc.enable}

			after, err := withoutUnknownPolicies(before, client)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, plugin := range after.DisablePlugins {
				got[plugin] = true
			}
			for _, plugin := range tc.want {
				if !got[plugin] {
					t.Errorf("%s is on", plugin)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("off are %v, want %v", after.DisablePlugins, tc.want)
			}
			if len(before.DisablePlugins) != 0 {
				t.Error("the options were changed")
			}
		})
	}
}

func TestVersion(t *testing.T) {
	outsideCluster(t)
	ca := filepath.Join(t.TempDir(), "missing")
	o := parse(t, "--client-ca-file="+ca)
	info := namedVersion{o.ServerRun.ComponentGlobalsRegistry.EffectiveVersionFor(o.ServerRun.ComponentName)}.Info()
	if _, err := version.ParseSemantic(info.GitVersion); err != nil || !strings.Contains(info.GitVersion, "+sandlot.") {
		t.Errorf("git version %q: %v", info.GitVersion, err)
	}
}

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	return o
}

// outsideCluster makes sure that the test does not find the cluster it may run in.
func outsideCluster(t *testing.T) {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if err := os.Unsetenv("KUBERNETES_SERVICE_HOST"); err != nil {
		t.Fatal(err)
	}
}
