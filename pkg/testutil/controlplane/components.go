// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed" // for the files below
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed stages.yaml
var stagesYAML []byte

//go:embed audit-policy.yaml
var auditPolicyYAML []byte

const (
	stagesFile      = "stages.yaml"
	auditPolicyFile = "audit-policy.yaml"

	// serviceAccountIssuer is who tokens of service accounts say they are from.
	serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"
)

func etcdCommand(path, name, dataDir string, client, peer int, more ...string) command {
	clientURL, peerURL := "http://"+address(client), "http://"+address(peer)
	return command{
		name: name,
		path: path,
		args: append([]string{
			"--name=" + name,
			"--data-dir=" + dataDir,
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=" + name + "=" + peerURL,
			"--log-level=warn",
		}, more...),
		ready: get(http.DefaultClient, clientURL+"/health"),
	}
}

func (c *ControlPlane) apiServerCommand(path string) command {
	return command{
		name: "kube-apiserver",
		path: path,
		args: append([]string{
			"--kubelet-preferred-address-types=InternalIP", // names of nodes are in no DNS
			"--etcd-servers=http://" + address(c.etcdPort),
			"--bind-address=" + loopback,
			"--advertise-address=" + loopback,
			// The reconciler refuses a loopback address.
			"--endpoint-reconciler-type=none",
			fmt.Sprintf("--secure-port=%d", c.apiServerPort),
			"--cert-dir=" + c.pki.dir,
			"--tls-cert-file=" + c.pki.file(servingName+".crt"),
			"--tls-private-key-file=" + c.pki.file(servingName+".key"),
			"--client-ca-file=" + c.pki.file(clusterCAFile),
			"--requestheader-client-ca-file=" + c.pki.file(proxyCAFile),
			"--requestheader-allowed-names=front-proxy",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-uid-headers=X-Remote-Uid",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + c.pki.file(proxyClientName+".crt"),
			"--proxy-client-key-file=" + c.pki.file(proxyClientName+".key"),
			// Without a CA for kubelets: tests play some with certificates of their own.
			"--kubelet-client-certificate=" + c.pki.file(kubeletClientName+".crt"),
			"--kubelet-client-key=" + c.pki.file(kubeletClientName+".key"),
			"--service-account-issuer=" + serviceAccountIssuer,
			"--service-account-key-file=" + c.pki.file(serviceAccountsFile),
			"--service-account-signing-key-file=" + c.pki.file(serviceAccountsFile),
			"--service-cluster-ip-range=10.0.0.0/16",
			"--authorization-mode=Node,RBAC",
			"--allow-privileged=true",
			// Bursts of thousands of pods are what this is for.
			"--max-requests-inflight=1600",
			"--max-mutating-requests-inflight=800",
			"--audit-policy-file=" + c.file(auditPolicyFile),
			"--audit-log-path=" + c.AuditLog(),
		}, c.options.APIServerArgs...),
		// It would wait a minute for watches that it proxies, without taking requests
		// any more. A kubelet would not let it either.
		grace: 5 * time.Second,
		ready: get(c.client, "https://"+address(c.apiServerPort)+"/readyz"),
	}
}

// clientArgs are the flags of a client of kube-apiserver that serves health and
// metrics on a port, and does its work at the rate of a large cluster.
func (c *ControlPlane) clientArgs(kubeconfig string, port int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + c.pki.file(servingName+".crt"),
		"--tls-private-key-file=" + c.pki.file(servingName+".key"),
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--leader-elect=false",
	}
}

func (c *ControlPlane) controllerManagerCommand(path, kubeconfig string, port int) command {
	return command{
		name: "kube-controller-manager",
		path: path,
		args: append(c.clientArgs(kubeconfig, port),
			"--root-ca-file="+c.pki.file(clusterCAFile),
			"--service-account-private-key-file="+c.pki.file(serviceAccountsFile),
			"--use-service-account-credentials=true",
			"--node-monitor-grace-period="+c.options.NodeGrace.String(),
			"--node-startup-grace-period="+c.options.NodeGrace.String(),
		),
		ready: get(c.client, "https://"+address(port)+"/healthz"),
	}
}

func (c *ControlPlane) schedulerCommand(path, kubeconfig string, port int) command {
	return command{
		name:  "kube-scheduler",
		path:  path,
		args:  c.clientArgs(kubeconfig, port),
		ready: get(c.client, "https://"+address(port)+"/healthz"),
	}
}

func (c *ControlPlane) kwokCommand(path, kubeconfig string, port int) command {
	podCIDR := c.options.PodCIDR
	if podCIDR == "" {
		podCIDR = "127.1.0.1/16"
	}
	return command{
		name: "kwok",
		path: path,
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--config=" + c.file(stagesFile),
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=" + kwokNode,
			"--cidr=" + podCIDR,
			"--node-ip=" + loopback,
			"--server-address=" + address(port),
		},
		// Without a home of its own it would read the user's configuration as well.
		env:   []string{"HOME=" + c.home()},
		ready: get(http.DefaultClient, "http://"+address(port)+"/healthz"),
	}
}

// writeConfigs writes the files that the programs read, except for certificates and
// kubeconfigs.
func (c *ControlPlane) writeConfigs() error {
	for name, content := range map[string][]byte{stagesFile: stagesYAML, auditPolicyFile: auditPolicyYAML} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.options.Dir, name) }

func (c *ControlPlane) logDir() string { return c.file("log") }

// home is a home folder for programs, which would else use the user's.
func (c *ControlPlane) home() string { return c.file("home") }

// httpClient returns a client of servers with certificates of a CA.
func httpClient(ca []byte) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

// get returns a check that a URL answers with 200.
func get(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", url, response.Status, strings.Join(failedChecks(string(body)), "; "))
		}
		return nil
	}
}

// failedChecks returns the lines of a health report that matter.
func failedChecks(body string) []string {
	lines := strings.Split(strings.TrimSpace(body), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "[+]") })
}
