// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package walk

import (
	"go/ast"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// costRecord is the file with the recorded cost.
const costRecord = "cost.json"

// growth is by how many percent a count may differ from the recorded one. The work that a server
// does from time to time, and the lengths of names and times, make small differences.
const growth = 5

// codecs are the methods that encode and decode what is stored, by the name of their calls.
var codecs = map[string]struct{ file, receiver, method string }{
	encodings: {"pkg/apiserver/storagecodec.go", "storageEncoder", "Encode"},
	decodings: {"pkg/apiserver/decoding/stored.go", "storedDecoder", "Decode"},
}

// testCost compares what the cheapest claim cost with the record.
func testCost(t *testing.T, folder string, profiles [claims]profile) {
	got := Cost{}
	for i, p := range profiles {
		var used Cost
		read(t, filepath.Join(folder, strconv.Itoa(i+1), costFile), &used)
		for name, codec := range codecs {
			used[name] = p.calls(t, codec.file, codec.receiver, codec.method)
		}
		t.Logf("claim %d: %v", i+1, used)
		for name, n := range used {
			if least, ok := got[name]; !ok || n < least {
				got[name] = n
			}
		}
	}
	if *update {
		write(t, costRecord, got)
		return
	}
	var want Cost
	read(t, costRecord, &want)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		switch {
		case 100*got[name] > (100+growth)*want[name]:
			t.Errorf("%s of a warm claim: %d, more than the recorded %d", name, got[name], want[name])
		case 100*got[name] < (100-growth)*want[name]:
			t.Errorf("%s of a warm claim: %d, less than the recorded %d: record that with -update", name, got[name], want[name])
		}
	}
}

// calls returns how often a method was called.
func (p profile) calls(t *testing.T, file, receiver, method string) uint64 {
	t.Helper()
	set, functions := functionsOf(t, file)
	for _, f := range functions {
		if f.Name.Name != method || f.Recv == nil {
			continue
		}
		if name, ok := f.Recv.List[0].Type.(*ast.Ident); !ok || name.Name != receiver {
			continue
		}
		start := set.Position(f.Body.Lbrace).Line
		for block, n := range p[file] {
			if block.first == start {
				return uint64(n)
			}
		}
	}
	t.Fatalf("no claim calls a method %s of %s in %s", method, receiver, file)
	return 0
}
