// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "path/filepath"

// StoreDir is the folder that stands for the volume of Sandlot's store: of the
// etcd, or of the API server that has it inside.
func (s *Sandlot) StoreDir() string {
	owner := etcdName
	if s.etcd == nil {
		owner = apiServerName + "-0"
	}
	return filepath.Join(s.dir, "data", owner)
}
