// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

// StoredJSON returns an object that is stored in etcd as JSON, in whatever form it is stored.
func StoredJSON(stored string) (string, error) {
	obj, err := runtime.Decode(apiserver.NewStorageCodec(), []byte(stored))
	if err != nil {
		return "", fmt.Errorf("decoding what is stored: %w", err)
	}
	text, err := json.Marshal(obj)
	return string(text), err
}
