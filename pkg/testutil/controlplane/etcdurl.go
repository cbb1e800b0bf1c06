// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "fmt"

// EtcdURL is where Sandlot's own etcd answers its clients, who need a certificate.
func (s *Sandlot) EtcdURL() string { return fmt.Sprintf("https://localhost:%d", s.etcdPort) }
