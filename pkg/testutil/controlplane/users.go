// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandlot-io/sandlot/pkg/localpki"
)

const (
	adminName = "admin"
	// tokenSeconds is how long a token of a service account is valid: longer than
	// anybody lets a local cluster run without starting it again.
	tokenSeconds = 365 * 24 * 60 * 60
)

// Config is for an admin (of the group system:masters), without a limit of
// requests.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig returns the path of the admin's kubeconfig file.
func (c *ControlPlane) Kubeconfig() string { return c.file("admin.kubeconfig") }

// User is for a user with a client certificate, without a limit of requests.
// They have only the rights that RBAC gives them.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	cert, err := c.pki.cluster.Issue(localpki.Leaf{CommonName: name, Organization: groups, Client: true})
	if err != nil {
		return nil, err
	}
	config := c.config()
	config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = cert.Cert, cert.Key
	return config, nil
}

// Kubelet is for the kubelet of a node. Its certificate is that of its server as well, at some
// addresses.
func (c *ControlPlane) Kubelet(node string, addresses ...string) (*rest.Config, error) {
	cert, err := c.pki.cluster.Issue(localpki.Leaf{
		CommonName: "system:node:" + node, Organization: []string{"system:nodes"}, Hosts: addresses, Client: true,
	})
	if err != nil {
		return nil, err
	}
	config := c.config()
	config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = cert.Cert, cert.Key
	return config, nil
}

// UserKubeconfig writes what User returns to a file and returns its path.
func (c *ControlPlane) UserKubeconfig(name string, groups ...string) (path string, err error) {
	user, err := c.User(name, groups...)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig("user-"+name, user)
}

// ServiceAccountKubeconfig writes a kubeconfig with a new token of a service
// account and returns its path. The service account must exist.
func (c *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (path string, err error) {
	token, err := c.ServiceAccountToken(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	config := c.config()
	config.BearerToken = token
	return c.writeKubeconfig("serviceaccount-"+namespace+"-"+name, config)
}

// ServiceAccountToken returns a new token of a service account, which must exist.
func (c *ControlPlane) ServiceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of service account %s/%s: %w", namespace, name, err)
	}
	return token.Status.Token, nil
}

// config says where the API is, but not who asks.
func (c *ControlPlane) config() *rest.Config {
	return &rest.Config{
		Host:            "https://" + address(c.apiServerPort),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.cluster.CA()},
		QPS:             -1,
	}
}

// componentKubeconfig writes the kubeconfig of a part of the control plane.
func (c *ControlPlane) componentKubeconfig(user string, groups ...string) (string, error) {
	config, err := c.User(user, groups...)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(strings.TrimPrefix(user, "system:"), config)
}

// writeKubeconfig writes a file that appears whole, for another process may be
// reading an older one.
func (c *ControlPlane) writeKubeconfig(name string, user *rest.Config) (string, error) {
	const context = "sandlot"
	config := clientcmdapi.NewConfig()
	config.Clusters[context] = &clientcmdapi.Cluster{Server: user.Host, CertificateAuthorityData: user.CAData}
	config.AuthInfos[context] = &clientcmdapi.AuthInfo{
		ClientCertificateData: user.CertData,
		ClientKeyData:         user.KeyData,
		Token:                 user.BearerToken,
	}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: context, Namespace: metav1.NamespaceDefault}
	config.CurrentContext = context
	path := c.file(strings.NewReplacer("/", "-", ":", "-").Replace(name) + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path+".new"); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return path, os.Rename(path+".new", path)
}
