// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota enforces ResourceQuotas that count our objects. kube-apiserver
// does not do so for objects that it does not store; what is used already is
// counted by kube-controller-manager, for all objects alike. A namespace without
// a quota costs no request to the cluster.
package quota
