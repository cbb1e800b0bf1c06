// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import "k8s.io/apimachinery/pkg/util/validation"

// NameProblems returns why no Service can have the name of a sandbox; none if one can.
func NameProblems(name string) []string { return validation.IsDNS1123Label(name) }
