// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestStopCommand: what "up" prints stops the cluster that it has started.
func TestStopCommand(t *testing.T) {
	usual, err := filepath.Abs(defaultDir)
	if err != nil {
		t.Fatal(err)
	}
	if command := (&options{dir: usual}).stopCommand(); command != "make cluster-down" {
		t.Errorf("%s is stopped by %q", usual, command)
	}
	if command := (&options{dir: "/data/second"}).stopCommand(); command != "make cluster-down CLUSTER_DIR=/data/second" {
		t.Errorf("another one is stopped by %q", command)
	}
}

// TestWhereToLook: "down" in a folder without a cluster says how to find the one that was meant.
func TestWhereToLook(t *testing.T) {
	said := (&options{dir: "/data/second"}).whereToLook()
	for _, part := range []string{"running in /data/second", "CLUSTER_DIR", "ps axww -o pid,command | grep '[c]luster serve'"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is missing in:\n%s", part, said)
		}
	}
}
