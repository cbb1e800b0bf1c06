// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// version is what "make golden" keeps a store of.
var version = flag.String("golden-version", "", "keep the store that TestMake makes as that of this release")

// maxStoreBytes is how large a store may be that the repository keeps.
const maxStoreBytes = 300 << 10

// TestMake makes the store of this version, and reads it. With -golden-version it is kept
// in testdata; a release makes it so.
func TestMake(t *testing.T) {
	t.Parallel()
	folder, name := t.TempDir(), "made"
	if *version != "" {
		folder, name = "testdata", *version
	}
	release := filepath.Join(folder, name)
	etcd := testutil.StartEtcd(t)
	servers := map[string]*testutil.Server{}
	for prefix, encrypted := range prefixes {
		servers[prefix] = testutil.Start(t, testutil.WithEtcd(etcd), at(prefix, encrypted))
	}
	fill(t, servers[options.EtcdPrefix])
	fillEncrypted(t, servers[encryptedPrefix])

	// What is answered is what is stored: nothing changes before and after the snapshot.
	var want map[string]answers
	for attempt := 0; ; attempt++ {
		want = readServers(t, servers)
		save(t, etcd, release+storeSuffix)
		diff := cmp.Diff(want, readServers(t, servers))
		if diff == "" {
			break
		}
		if attempt > 100 {
			t.Fatalf("the store does not come to rest:\n%s", diff)
		}
	}
	writeAnswers(t, release+answersSuffix, want)
	info, err := os.Stat(release + storeSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxStoreBytes {
		t.Errorf("the store has %d bytes, more than %d", info.Size(), maxStoreBytes)
	}
	for _, s := range servers {
		s.Stop()
	}
	check(t, restore(t, release+storeSuffix), readAnswers(t, release+answersSuffix))
}

func readServers(t *testing.T, servers map[string]*testutil.Server) map[string]answers {
	t.Helper()
	all := map[string]answers{}
	for prefix, s := range servers {
		all[prefix] = readAll(t, s)
	}
	return all
}

// TestMakeHasEveryKind holds what is made to what a release has to keep: each kind, in each
// API, in the states in which it may be for long, with all fields.
func TestMakeHasEveryKind(t *testing.T) {
	t.Parallel()
	all := readAnswers(t, newest(t)+answersSuffix)
	for _, resource := range resources {
		found := false
		for key := range all[options.EtcdPrefix] {
			found = found || resource.has(key, everyField)
		}
		if !found {
			t.Errorf("there is no %s with every field", resource)
		}
	}
	phases := map[string]int{}
	for key, answer := range all[options.EtcdPrefix] {
		if resources[0].has(key, states) {
			var claim struct {
				Status struct{ Phase string }
			}
			decode(t, answer, &claim)
			phases[claim.Status.Phase]++
		}
	}
	if phases["Claiming"] < 3 || phases["Completed"] < 3 {
		t.Errorf("claims are %v", phases)
	}
	content, err := os.ReadFile(newest(t) + answersSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte(encryptedPrefix)) {
		t.Error("nothing is encrypted")
	}
}
