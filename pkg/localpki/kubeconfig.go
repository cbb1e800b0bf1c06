// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package localpki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the name of the cluster, user and context in a kubeconfig.
const contextName = "sandlot"

// CheckKubeconfig returns an error if there is a file at path that is not a kubeconfig,
// so that WriteKubeconfig could not add to it.
func CheckKubeconfig(path string) error {
	_, err := loadKubeconfig(path)
	return err
}

func loadKubeconfig(path string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// WriteKubeconfig puts a context for the admin into the kubeconfig at path and
// makes it the current one. Other contexts in the file stay as they are.
func (p *PKI) WriteKubeconfig(path, server string) error {
	config, err := loadKubeconfig(path)
	if err != nil {
		return err
	}
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: p.CA}
	config.AuthInfos[contextName] = &clientcmdapi.AuthInfo{ClientCertificateData: p.Admin.Cert, ClientKeyData: p.Admin.Key}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName, Namespace: "default"}
	config.CurrentContext = contextName
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // it may have been there before, readable to others
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}
