// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

func newClient(t *testing.T) *clientv3.Client {
	t.Helper()
	etcd, err := embeddedetcd.Start(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), etcd.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestEnsure(t *testing.T) {
	client := newClient(t)
	cases := map[string]struct {
		stored string // empty: nothing
		want   string // what is stored afterwards
		err    string // a part of the error
	}{
		"a new store, or one of before the key": {
			want: fmt.Sprintf(`{"format":%d,"version":"v2"}`, Writes),
		},
		"the same format, of another version": {
			stored: fmt.Sprintf(`{"format":%d,"version":"v1"}`, Writes),
			want:   fmt.Sprintf(`{"format":%d,"version":"v1"}`, Writes),
		},
		"an older format": {
			stored: fmt.Sprintf(`{"format":%d,"version":"v1"}`, Writes-1),
			want:   fmt.Sprintf(`{"format":%d,"version":"v2"}`, Writes),
		},
		"the newest that is read": {
			stored: fmt.Sprintf(`{"format":%d,"version":"v3"}`, Reads),
			want:   fmt.Sprintf(`{"format":%d,"version":"v3"}`, Reads),
		},
		"what a later version may add": {
			stored: fmt.Sprintf(`{"format":%d,"version":"v3","more":true}`, Writes),
			want:   fmt.Sprintf(`{"format":%d,"version":"v3","more":true}`, Writes),
		},
		"too new": {
			stored: fmt.Sprintf(`{"format":%d,"version":"v9"}`, Reads+1),
			want:   fmt.Sprintf(`{"format":%d,"version":"v9"}`, Reads+1),
			err:    "run v9 or newer",
		},
		"no record": {
			stored: "format 1",
			want:   "format 1",
			err:    "decoding /store-",
		},
	}
	n := 0
	for name, tc := range cases {
		n++
		prefix := fmt.Sprintf("/store-%d", n)
		t.Run(name, func(t *testing.T) {
			if tc.stored != "" {
				if _, err := client.Put(t.Context(), Key(prefix), tc.stored); err != nil {
					t.Fatal(err)
				}
			}
			checked := Check(t.Context(), client, prefix, "v2")
			_, err := Ensure(t.Context(), client, prefix, "v2", Writes)
			if fmt.Sprint(checked) != fmt.Sprint(err) {
				t.Errorf("to check says %v, to start %v", checked, err)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got the error %v, want %q", err, tc.err)
			}
			if got := readStored(t, client, prefix); got != tc.want {
				t.Errorf("%s is stored, want %s", got, tc.want)
			}
		})
	}
}

func readStored(t *testing.T, client *clientv3.Client, prefix string) string {
	t.Helper()
	answer, err := client.Get(t.Context(), Key(prefix))
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("reading the format: %v, %v", answer, err)
	}
	return string(answer.Kvs[0].Value)
}

// TestFormatOnlyRises lets servers of many versions start at once on an old store: the
// newest format is what stays, whichever server comes last.
func TestFormatOnlyRises(t *testing.T) {
	client := newClient(t)
	const prefix, servers = "/store", 20
	var starts errgroup.Group
	for i := range servers {
		starts.Go(func() error {
			_, err := ensure(t.Context(), client, prefix, Record{Format: Reads - i%3, Version: fmt.Sprint("v", i)}, 0)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		t.Fatal(err)
	}
	var stored Record
	if err := json.Unmarshal([]byte(readStored(t, client, prefix)), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Format != Reads {
		t.Errorf("%+v is stored, want format %d", stored, Reads)
	}
}

// TestNewStore: a store in which there is nothing has the format that a server wants for it, and one that
// a version of before the key has filled does not.
func TestNewStore(t *testing.T) {
	client := newClient(t)
	if _, err := client.Put(t.Context(), "/old/agents.kruise.io/sandboxes/ns/a", "{}"); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]int{"/new": Protobuf, "/old": Writes, "/ol": Protobuf} {
		for i := range 2 { // at the next start it has the same format, and is not new
			isNew, err := Ensure(t.Context(), client, prefix, "v2", Protobuf)
			if err != nil || isNew != (i == 0 && want == Protobuf) {
				t.Errorf("%s is new at start %d: %t, %v", prefix, i, isNew, err)
			}
			if stored, _, err := Read(t.Context(), client, prefix, "v2"); err != nil || stored.Format != want {
				t.Errorf("%s has format %d, %v, want %d", prefix, stored.Format, err, want)
			}
		}
	}
}

// TestWrite: the format changes only if no other server has changed it meanwhile.
func TestWrite(t *testing.T) {
	client := newClient(t)
	if _, err := Ensure(t.Context(), client, "/store", "v2", Writes); err != nil {
		t.Fatal(err)
	}
	_, revision, err := Read(t.Context(), client, "/store", "v2")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		written, err := Write(t.Context(), client, "/store", Record{Format: Protobuf, Version: fmt.Sprint("v", i)}, revision)
		if err != nil || written != want {
			t.Errorf("written: %t, %v, want %t", written, err, want)
		}
	}
	if stored, _, err := Read(t.Context(), client, "/store", "v2"); err != nil || stored != (Record{Protobuf, "v0"}) {
		t.Errorf("got %+v, %v", stored, err)
	}
}

// TestNeighboursShareAStore: what this version writes can be read by the one before, which
// reads one format less at least.
func TestNeighboursShareAStore(t *testing.T) {
	if Writes > Reads || Writes < Reads-1 {
		t.Errorf("writes format %d and reads up to %d: see the rule in the doc comment of the package", Writes, Reads)
	}
}

func TestTooNewError(t *testing.T) {
	client := newClient(t)
	if _, err := client.Put(t.Context(), Key("/store"), `{"format":7,"version":"v0.9.0"}`); err != nil {
		t.Fatal(err)
	}
	_, err := Ensure(t.Context(), client, "/store", "v0.2.0", Protobuf)
	tooNew, ok := errors.AsType[*TooNewError](err)
	if !ok {
		t.Fatal("not refused as too new")
	}
	want := fmt.Sprintf("the store has format 7 (/store/sandlot-format in etcd), which Sandlot v0.9.0 was the first to write, and this is v0.2.0, "+
		"which reads formats up to %d: run v0.9.0 or newer, or restore a backup of before that upgrade", Reads)
	if tooNew.Error() != want {
		t.Errorf("says %q, want %q", tooNew, want)
	}
}
