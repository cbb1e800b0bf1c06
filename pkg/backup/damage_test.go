// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// damage is one change of the file of a snapshot, without its checksum.
type damage struct {
	name  string
	apply func(d database) database
}

// number changes a number of a size at a place of the file, to each of some that break something.
func number(name string, at uint64, size int) []damage {
	var all []damage
	for way, change := range map[string]func(uint64) uint64{
		"0":           func(uint64) uint64 { return 0 },
		"1":           func(uint64) uint64 { return 1 },
		"one more":    func(n uint64) uint64 { return n + 1 },
		"one less":    func(n uint64) uint64 { return n - 1 },
		"the largest": func(uint64) uint64 { return 1<<64 - 1 },
		"the sign":    func(n uint64) uint64 { return n ^ 1<<(8*size-1) },
	} {
		all = append(all, damage{fmt.Sprintf("%s at %d is %s", name, at, way), func(d database) database {
			var text [8]byte
			copy(text[:], d[at:at+uint64(size)])
			binary.NativeEndian.PutUint64(text[:], change(binary.NativeEndian.Uint64(text[:])))
			copy(d[at:], text[:size])
			return d
		}})
	}
	return all
}

// sealMeta computes the checksums of the meta pages.
func sealMeta(d database) database {
	d.setMeta(48, d.meta(48))
	return d
}

// usedPages returns the pages with the keys of a database, by their ids.
func usedPages(t *testing.T, d database) []uint64 {
	t.Helper()
	p := &boltPages{file: bytes.NewReader(d), pageSize: uint64(len(d.page(0))), end: d.meta(40), seen: make([]bool, d.meta(40))}
	if err := p.check(d.meta(16), 0, keyRange{}, &boltTree{leafDepth: -1, leafBytes: maxInnerBytes, entry: p.checkBucket}); err != nil {
		t.Fatal(err)
	}
	var used []uint64
	for id, seen := range p.seen {
		if seen {
			used = append(used, uint64(id))
		}
	}
	return used
}

// swap exchanges the positions and sizes of two elements of a page, and so their keys.
func swap(page []byte, a, b int) {
	first, second := page[pageHeader+a*pageElement:], page[pageHeader+b*pageElement:]
	at := 4 // of the position in a leaf
	size := 12
	if binary.NativeEndian.Uint16(page[8:]) == branchPage {
		at, size = 0, 8
	}
	mine, its := bytes.Clone(first[at:at+size]), bytes.Clone(second[at:at+size])
	copy(first[at:], its)
	copy(second[at:], mine)
	// Positions are counted from the element.
	distance := uint32((b - a) * pageElement)
	binary.NativeEndian.PutUint32(first[at:], binary.NativeEndian.Uint32(first[at:])+distance)
	binary.NativeEndian.PutUint32(second[at:], binary.NativeEndian.Uint32(second[at:])-distance)
}

// damages returns all changes of a snapshot.
func damages(t *testing.T, good database, lease clientv3.LeaseID, member uint64) []damage {
	t.Helper()
	all := []damage{{"nothing", func(d database) database { return d }}}
	add := func(name string, apply func(d database) database) { all = append(all, damage{name, apply}) }
	pageSize := uint64(len(good.page(0)))
	for meta := range uint64(2) {
		for _, field := range []struct {
			name string
			at   uint64
			size int
		}{
			{"magic", 0, 4}, {"version", 4, 4}, {"page size", 8, 4}, {"flags", 12, 4}, {"root", 16, 8}, {"sequence", 24, 8},
			{"freelist", 32, 8}, {"end", 40, 8}, {"transaction", 48, 8}, {"checksum", 56, 8},
		} {
			for _, change := range number(field.name, meta*pageSize+pageHeader+field.at, field.size) {
				all = append(all, change)
				if field.name == "magic" || field.name == "version" || field.name == "checksum" || field.name == "page size" {
					continue
				}
				add(change.name+" with the checksum, in both pages", func(d database) database {
					if d = change.apply(d); meta == 0 {
						d.setMeta(int(field.at), d.meta(int(field.at)))
					}
					return sealMeta(d)
				})
			}
		}
	}
	for _, id := range usedPages(t, good) {
		page, at := good.page(id), id*pageSize
		name := fmt.Sprintf("page %d: ", id)
		for _, field := range []struct {
			name string
			at   uint64
			size int
		}{{"id", 0, 8}, {"flags", 8, 2}, {"count", 10, 2}, {"overflow", 12, 4}} {
			all = append(all, number(name+field.name, at+field.at, field.size)...)
		}
		count := int(binary.NativeEndian.Uint16(page[10:]))
		for _, i := range []int{0, count / 2, count - 1} {
			for field := range uint64(4) {
				all = append(all, number(fmt.Sprintf("%selement %d, number %d", name, i, field), at+pageHeader+uint64(i)*pageElement+4*field, 4)...)
			}
		}
		if count > 1 {
			add(name+"two keys", func(d database) database { swap(d.page(id), count-2, count-1); return d })
			add(name+"one key twice", func(d database) database {
				copy(d.page(id)[pageHeader+pageElement:], d.page(id)[pageHeader:pageHeader+pageElement])
				return d
			})
		}
		add(name+"nothing but zeros", func(d database) database { clear(d.page(id)); return d })
	}
	for _, length := range []int{0, 1, 512, int(pageSize), 2 * int(pageSize), len(good) / 2, len(good) - int(pageSize), len(good) - 512} {
		add(fmt.Sprintf("only %d bytes", length), func(d database) database { return d[:length] })
	}
	free := slices.Index(slices.Collect(func(yield func(bool) bool) {
		used := usedPages(t, good)
		for id := range good.meta(40) {
			if !yield(id > 1 && !slices.Contains(used, id)) {
				return
			}
		}
	}), true)
	if free < 0 {
		t.Fatal("no page is free")
	}
	for name, ids := range map[string][]uint64{
		"empty": nil, "a meta page": {1}, "itself": {uint64(free)}, "the root": {good.meta(16)}, "far": {1 << 40}, "twice": {uint64(free) + 1, uint64(free) + 1},
	} {
		add("a freelist: "+name, func(d database) database {
			page := d.page(uint64(free))
			clear(page)
			binary.NativeEndian.PutUint64(page, uint64(free))
			binary.NativeEndian.PutUint16(page[8:], freelistPage)
			binary.NativeEndian.PutUint16(page[10:], uint16(len(ids)))
			for i, id := range ids {
				binary.NativeEndian.PutUint64(page[pageHeader+8*i:], id)
			}
			d.setMeta(32, uint64(free))
			return d
		})
	}
	// What etcd keeps in its buckets: the value follows the key. What is in free pages is changed, too.
	keys := map[string][]byte{
		"the value of a lease": binary.BigEndian.AppendUint64(nil, uint64(lease)), "the id of a member": fmt.Appendf(nil, "%x", member)[:8],
	}
	for _, key := range []string{"consistent_index", "confState", "term", "scheduledCompactRev", "finishedCompactRev", "clusterVersion"} {
		keys["the value of "+key] = []byte(key)
	}
	for name, key := range keys {
		if !bytes.Contains(good, key) {
			t.Fatalf("%s is not there", name)
		}
		add(name, func(d database) database {
			for at := 0; ; {
				next := bytes.Index(d[at:], key)
				if next < 0 {
					return d
				}
				at += next + len(key)
				copy(d[at:], "\xff\xff\xff\xff\xff\xff\xff\xff")
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	used := usedPages(t, good)
	for i := range 40 {
		at := used[random.IntN(len(used))]*pageSize + random.Uint64N(pageSize)
		bit := byte(1) << random.IntN(8)
		add(fmt.Sprintf("bit flip %d at %d", i, at), func(d database) database { d[at] ^= bit; return d })
	}
	return all
}

// TestDamagedSnapshots: each snapshot that is not what etcd wrote is refused with an error that names the
// file, or can be used. None panics, on any goroutine, or hangs.
func TestDamagedSnapshots(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 30, 120)
	lease, err := s.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "/sandlot/sandlot-servers/a", "a", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	deleted, err := s.Delete(t.Context(), sandboxes+"default/pool-000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(t.Context(), deleted.Header.Revision-3, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	good := s.snapshot(t)
	good = good[:len(good)-sha256.Size]
	members, err := s.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := damages(t, good, lease.ID, members.Members[0].GetID())
	var refused, unusable, usable atomic.Int64
	var group errgroup.Group
	group.SetLimit(8) // they wait for the disk
	for _, damage := range all {
		group.Go(func() error {
			d := damage.apply(bytes.Clone(good))
			dir := t.TempDir()
			path := filepath.Join(dir, "damaged")
			sum := sha256.Sum256(d)
			if err := os.WriteFile(path, append(d, sum[:]...), 0o600); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			snapshot, err := ReadSnapshot(ctx, path, "")
			if err != nil {
				if refused.Add(1); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || len(err.Error()) > 1000 {
					t.Errorf("%s: %v", damage.name, err)
				}
				return nil
			}
			switch _, err = Prepare(ctx, snapshot, dir, DefaultPrefix, start); {
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				t.Errorf("%s: it hangs: %v", damage.name, err)
			case err != nil:
				unusable.Add(1)
				t.Logf("%s: %v", damage.name, err)
			default:
				usable.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("of %d snapshots %d are refused, %d unusable and %d usable", len(all), refused.Load(), unusable.Load(), usable.Load())
	if usable.Load() == 0 || refused.Load() < 500 {
		t.Error("the damage is of one kind only")
	}
}
