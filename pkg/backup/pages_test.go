// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
)

// database are the bytes of a snapshot that a test forges.
type database []byte

func (d database) page(id uint64) []byte {
	size := uint64(binary.NativeEndian.Uint32(d[pageHeader+8:]))
	return d[id*size : (id+1)*size]
}

// meta returns a number of the first meta page.
func (d database) meta(at int) uint64 { return binary.NativeEndian.Uint64(d[pageHeader+at:]) }

// setMeta sets one in both, with the checksums.
func (d database) setMeta(at int, value uint64) {
	for id := range uint64(2) {
		meta := d.page(id)[pageHeader:]
		binary.NativeEndian.PutUint64(meta[at:], value)
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
	}
}

// root is the page with the buckets, and keys the first with keys of a bucket.
func (d database) root() []byte { return d.page(d.meta(16)) }

func (d database) keys(t *testing.T) []byte {
	t.Helper()
	page := d.page(binary.NativeEndian.Uint64(d.bucket(t)))
	for binary.NativeEndian.Uint16(page[8:]) == branchPage {
		page = d.page(binary.NativeEndian.Uint64(page[pageHeader+8:]))
	}
	return page
}

// bucket returns the value of a bucket that has pages of its own.
func (d database) bucket(t *testing.T) []byte {
	t.Helper()
	root := d.root()
	for i := range int(binary.NativeEndian.Uint16(root[10:])) {
		element := root[pageHeader+i*pageElement:]
		value := element[binary.NativeEndian.Uint32(element[4:])+binary.NativeEndian.Uint32(element[8:]):]
		if binary.NativeEndian.Uint64(value) != 0 {
			return value
		}
	}
	t.Fatal("no bucket has pages")
	return nil
}

// TestForgedSnapshots: a snapshot with a good checksum whose pages lead elsewhere is refused. bbolt
// would read beyond its memory, and end the process.
func TestForgedSnapshots(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 30, 30)
	good := s.snapshot(t)
	order := binary.NativeEndian
	const far = 1 << 40
	for name, forge := range map[string]func(t *testing.T, d database){
		"its end":                   func(_ *testing.T, d database) { d.setMeta(40, far) },
		"its root":                  func(_ *testing.T, d database) { d.setMeta(16, far) },
		"its root is a meta page":   func(_ *testing.T, d database) { d.setMeta(16, 1) },
		"its freelist":              func(_ *testing.T, d database) { d.setMeta(32, far) },
		"its freelist is its root":  func(_ *testing.T, d database) { d.setMeta(32, d.meta(16)) },
		"its page size":             func(_ *testing.T, d database) { d.setMeta(8, 3<<10) },
		"one meta page":             func(_ *testing.T, d database) { clear(d.page(1)) },
		"the id of a page":          func(_ *testing.T, d database) { order.PutUint64(d.root(), 3) },
		"the kind of a page":        func(_ *testing.T, d database) { order.PutUint16(d.root()[8:], metaPage) },
		"the count of a page":       func(t *testing.T, d database) { order.PutUint16(d.keys(t)[10:], 0xFFFF) },
		"the size of a page":        func(t *testing.T, d database) { order.PutUint32(d.keys(t)[12:], 1<<31) },
		"the place of a key":        func(t *testing.T, d database) { order.PutUint32(d.keys(t)[pageHeader+4:], 1<<31) },
		"the size of a key":         func(t *testing.T, d database) { order.PutUint32(d.keys(t)[pageHeader+8:], 0xFFFFFFFF) },
		"the size of a value":       func(t *testing.T, d database) { order.PutUint32(d.keys(t)[pageHeader+12:], 1<<31) },
		"a bucket in a bucket":      func(t *testing.T, d database) { order.PutUint32(d.keys(t)[pageHeader:], 1) },
		"no bucket":                 func(_ *testing.T, d database) { order.PutUint32(d.root()[pageHeader:], 0) },
		"where a bucket is":         func(t *testing.T, d database) { order.PutUint64(d.bucket(t), far) },
		"a bucket that is its root": func(t *testing.T, d database) { order.PutUint64(d.bucket(t), d.meta(16)) },
		"a branch to itself": func(t *testing.T, d database) {
			page := d.keys(t)
			order.PutUint16(page[8:], branchPage)
			order.PutUint16(page[10:], 1)
			order.PutUint32(page[pageHeader:], pageElement)
			order.PutUint32(page[pageHeader+4:], 1)
			order.PutUint64(page[pageHeader+8:], order.Uint64(page))
		},
		"the order of keys": func(t *testing.T, d database) { swap(d.keys(t), 0, 1) },
		"a key that is there twice": func(t *testing.T, d database) {
			copy(d.keys(t)[pageHeader+pageElement:], d.keys(t)[pageHeader:pageHeader+pageElement])
		},
		"a key of nothing": func(t *testing.T, d database) { order.PutUint32(d.keys(t)[pageHeader+8:], 0) },
		"the key above another page": func(t *testing.T, d database) {
			branch := d.page(order.Uint64(d.bucket(t)))
			if order.Uint16(branch[8:]) != branchPage {
				t.Fatal("the bucket has one page")
			}
			order.PutUint32(branch[pageHeader+pageElement+4:], order.Uint32(branch[pageHeader+pageElement+4:])-1)
		},
		"a page without keys": func(t *testing.T, d database) { order.PutUint16(d.keys(t)[10:], 0) },
		"a key that is no revision": func(t *testing.T, d database) {
			element := d.keys(t)[pageHeader:]
			element[order.Uint32(element[4:])+8] = '-'
		},
		"its transaction": func(_ *testing.T, d database) { d.setMeta(48, 1<<63) },
		"a branch to nothing": func(t *testing.T, d database) {
			page := d.keys(t)
			order.PutUint16(page[8:], branchPage)
			order.PutUint16(page[10:], 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := database(bytes.Clone(good[:len(good)-sha256.Size]))
			forge(t, d)
			sum := sha256.Sum256(d)
			path := filepath.Join(t.TempDir(), "forged")
			if err := os.WriteFile(path, append(d, sum[:]...), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := checkSum(path); !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v, want %v", err, ErrDamaged)
			}
		})
	}
}

// TestPagesOfDatabases: what bbolt writes is not refused, whatever was written and deleted before.
func TestPagesOfDatabases(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "db")
	be := backend.NewDefaultBackend(zap.NewNop(), path)
	defer be.Close()
	tx := be.BatchTx()
	tx.LockOutsideApply()
	buckets := []backend.Bucket{schema.Lease, schema.Members, schema.Alarm}
	for _, bucket := range buckets {
		tx.UnsafeCreateBucket(bucket)
	}
	tx.Unlock()
	for round := range 120 {
		tx.LockOutsideApply()
		for range random.IntN(600) {
			bucket := buckets[random.IntN(len(buckets))]
			key := fmt.Appendf(nil, "%0*d", 1+random.IntN(3), random.IntN(1000))
			if random.IntN(100) < 30+40*(round%2) { // grows and shrinks
				tx.UnsafePut(bucket, key, make([]byte, random.IntN(1<<(1+random.IntN(13)))))
			} else {
				tx.UnsafeDelete(bucket, key)
			}
		}
		if first := random.IntN(1000); round%10 == 9 { // a range, as a compaction does
			for i := first; i < first+500; i++ {
				tx.UnsafeDelete(schema.Lease, fmt.Appendf(nil, "%03d", i))
			}
		}
		tx.Unlock()
		be.ForceCommit()
		var written bytes.Buffer
		snapshot := be.Snapshot()
		if _, err := snapshot.WriteTo(&written); err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Close(); err != nil {
			t.Fatal(err)
		}
		if err := checkPages(bytes.NewReader(written.Bytes()), int64(written.Len())); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
