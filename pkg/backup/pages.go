// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/schema"
)

// What is in the file of a bbolt database, as far as it is needed to know that bbolt reads nothing
// beyond it.
const (
	pageHeader   = 16 // id uint64, flags uint16, count uint16, overflow uint32
	pageElement  = 16
	bucketHeader = 16 // root uint64, sequence uint64
	metaSize     = 64 // magic, version, page size and flags uint32, a bucket, then freelist, high water mark, transaction and checksum uint64

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)

	// maxPageDepth is how many pages are on the way to a key. With two keys in each page, more
	// pages do not fit into a file.
	maxPageDepth = 64
	// maxPageBytes is how many bytes a page has with those that it continues in. It has a few keys,
	// and etcd takes no request as large.
	maxPageBytes = 256 << 20
	// maxInnerBytes is how many a page has that is in memory while those below it are checked. It has
	// a few keys of maxKeyBytes, or is one page.
	maxInnerBytes = 1 << 20
	// maxKeyBytes is how long bbolt lets a key be.
	maxKeyBytes = 32768
	// maxCounter is what transactions and revisions are below. etcd and bbolt count on from them. It
	// is far beyond the microseconds since 1970, which the revision of a restored store is.
	maxCounter = 1 << 62
)

// boltPages checks the pages of a bbolt database. bbolt maps the file into memory and believes what
// its pages say of where others are: with a forged one it would read elsewhere, and the process
// would end, which no code can prevent then. Nor can any where bbolt panics, because it looks at
// all pages on a goroutine of its own when it opens a file.
type boltPages struct {
	file     io.ReaderAt
	pageSize uint64
	// end is the first page that the database does not have.
	end uint64
	// seen are the pages that were read.
	seen []bool
}

// boltEntry is a key with its value, or a bucket.
type boltEntry struct {
	flags      uint32
	key, value []byte
}

// boltTree is what is known of the keys of a bucket while they are checked.
type boltTree struct {
	// leafDepth is how many pages are above those with the keys, which is the same for all; -1
	// before the first one.
	leafDepth int
	// leafBytes is how many bytes a page with keys may have.
	leafBytes int
	// entry checks a key.
	entry func(page uint64, e boltEntry) error
}

// keyRange is which keys a page has: from is the first one, and to is larger than the last one. nil is
// any. bbolt finds a page again in the one above by its first key.
type keyRange struct{ from, to []byte }

// checkPages returns ErrDamaged if a file of a size is no bbolt database as etcd writes it into a
// snapshot: each page is within the file and used once, the keys are in order, there are no buckets in
// buckets, and the keys that etcd counts on from are valid.
func checkPages(file io.ReaderAt, size int64) error {
	first, err := readMeta(file, 0)
	if err != nil {
		return err
	}
	second, err := readMeta(file, int64(first.pageSize))
	if err != nil {
		return err
	}
	// A snapshot has the same in both.
	if second.transaction >= maxCounter || first.transaction >= maxCounter {
		return badPage(0, "no database has had as many transactions")
	}
	if second.transaction = first.transaction; *second != *first {
		return badPage(1, "its meta pages differ")
	}
	p := &boltPages{file: file, pageSize: uint64(first.pageSize), end: first.end}
	if p.end > uint64(size)/p.pageSize {
		return badPage(0, "it has %d bytes, and %d pages of %d", size, p.end, p.pageSize)
	}
	p.seen = make([]bool, p.end)
	if first.freelist != noFreelist {
		if err := p.checkFreelist(first.freelist); err != nil {
			return err
		}
	}
	if err := p.check(first.root, 0, keyRange{}, &boltTree{leafDepth: -1, leafBytes: maxInnerBytes, entry: p.checkBucket}); err != nil {
		return err
	}
	if first.freelist == noFreelist {
		return nil
	}
	if unused := slices.Index(p.seen[2:], false); unused >= 0 {
		return badPage(uint64(unused)+2, "it is not used, and not free")
	}
	return nil
}

// boltMeta is what a meta page says.
type boltMeta struct {
	pageSize                         uint32
	root, freelist, end, transaction uint64
}

func readMeta(file io.ReaderAt, at int64) (*boltMeta, error) {
	page := make([]byte, pageHeader+metaSize)
	if _, err := file.ReadAt(page, at); err != nil {
		return nil, badPage(0, "reading a meta page: %v", err)
	}
	order, meta := binary.NativeEndian, page[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:56]) // never fails
	m := &boltMeta{
		pageSize: order.Uint32(meta[8:]), root: order.Uint64(meta[16:]),
		freelist: order.Uint64(meta[32:]), end: order.Uint64(meta[40:]), transaction: order.Uint64(meta[48:]),
	}
	if order.Uint32(meta) != boltMagic || order.Uint32(meta[4:]) != boltVersion || order.Uint64(meta[56:]) != sum.Sum64() ||
		order.Uint16(page[8:])&metaPage == 0 || m.pageSize < 1<<10 || m.pageSize > 1<<16 || m.pageSize&(m.pageSize-1) != 0 {
		return nil, badPage(0, "it is no meta page")
	}
	return m, nil
}

// read returns a page with those that it continues in, which no other page may use.
func (p *boltPages) read(id uint64) ([]byte, error) {
	header := make([]byte, pageHeader)
	if id < 2 || id >= p.end {
		return nil, badPage(id, "it is not one of %d", p.end)
	}
	if _, err := p.file.ReadAt(header, int64(id*p.pageSize)); err != nil {
		return nil, badPage(id, "reading it: %v", err)
	}
	pages := uint64(binary.NativeEndian.Uint32(header[12:])) + 1
	if binary.NativeEndian.Uint64(header) != id || pages > p.end-id || pages > maxPageBytes/p.pageSize {
		return nil, badPage(id, "it says to be page %d, and to be as large as %d", binary.NativeEndian.Uint64(header), pages)
	}
	for i := id; i < id+pages; i++ {
		if p.seen[i] {
			return nil, badPage(i, "it is used twice")
		}
		p.seen[i] = true
	}
	page := make([]byte, pages*p.pageSize)
	if _, err := p.file.ReadAt(page, int64(id*p.pageSize)); err != nil {
		return nil, badPage(id, "reading it: %v", err)
	}
	return page, nil
}

func (p *boltPages) checkFreelist(id uint64) error {
	page, err := p.read(id)
	if err != nil {
		return err
	}
	flags, count, ids := binary.NativeEndian.Uint16(page[8:]), uint64(binary.NativeEndian.Uint16(page[10:])), page[pageHeader:]
	if count == 0xFFFF {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if flags != freelistPage || count > uint64(len(ids))/8 {
		return badPage(id, "it has flags %#x, and %d free pages", flags, count)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(ids[8*i:])
		if free < 2 || free >= p.end {
			return badPage(id, "page %d is free, and there are %d", free, p.end)
		}
		if p.seen[free] {
			return badPage(free, "it is used, or free twice")
		}
		p.seen[free] = true
	}
	return nil
}

// check checks a page with those below it, whose keys are in a range.
func (p *boltPages) check(id uint64, depth int, keys keyRange, tree *boltTree) error {
	if depth > maxPageDepth {
		return badPage(id, "it is below %d others", depth)
	}
	page, err := p.read(id)
	if err != nil {
		return err
	}
	switch flags := binary.NativeEndian.Uint16(page[8:]); flags {
	case branchPage:
		return p.checkBranch(id, page, depth, keys, tree)
	case leafPage:
	default:
		return badPage(id, "it has flags %#x", flags)
	}
	if tree.leafDepth >= 0 && tree.leafDepth != depth {
		return badPage(id, "it has keys, and is below %d pages, others are below %d", depth, tree.leafDepth)
	}
	tree.leafDepth = depth
	if count := binary.NativeEndian.Uint16(page[10:]); depth > 0 && count == 0 || len(page) > tree.leafBytes {
		return badPage(id, "it has %d keys in %d bytes", count, len(page))
	}
	return checkLeaf(id, page, keys, tree.entry)
}

// checkBranch checks a page that leads to others, and these.
func (p *boltPages) checkBranch(id uint64, page []byte, depth int, keys keyRange, tree *boltTree) error {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if count == 0 || pageHeader+count*pageElement > len(page) || len(page) > maxInnerBytes {
		return badPage(id, "it has %d elements in %d bytes", count, len(page))
	}
	// bound is the first key of an element, and the bound of the one before.
	bound := func(i int) ([]byte, error) {
		if i == count {
			return keys.to, nil
		}
		element := page[pageHeader+i*pageElement:]
		return keyOf(id, i, element, binary.NativeEndian.Uint32(element), binary.NativeEndian.Uint32(element[4:]))
	}
	from, err := bound(0)
	if err != nil {
		return err
	}
	if keys.from != nil && !bytes.Equal(from, keys.from) {
		return badPage(id, "its first key is another one than above it")
	}
	for i := range count {
		to, err := bound(i + 1)
		if err != nil {
			return err
		}
		if to != nil && bytes.Compare(from, to) >= 0 {
			return badPage(id, "the key of element %d is not before the next one", i)
		}
		next := binary.NativeEndian.Uint64(page[pageHeader+i*pageElement+8:])
		if err := p.check(next, depth+1, keyRange{from, to}, tree); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// keyOf returns the key of an element of a page, at a position after the beginning of the element.
func keyOf(id uint64, i int, element []byte, position, size uint32) ([]byte, error) {
	if uint64(position)+uint64(size) > uint64(len(element)) {
		return nil, badPage(id, "element %d is beyond it", i)
	}
	if size == 0 || size > maxKeyBytes {
		return nil, badPage(id, "element %d has a key of %d bytes", i, size)
	}
	return element[position : position+size], nil
}

// checkLeaf checks the elements of a page, or of what replaces one.
func checkLeaf(id uint64, page []byte, keys keyRange, check func(page uint64, e boltEntry) error) error {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if pageHeader+count*pageElement > len(page) {
		return badPage(id, "it has %d elements", count)
	}
	var last []byte
	for i := range count {
		element := page[pageHeader+i*pageElement:]
		position, size := binary.NativeEndian.Uint32(element[4:]), binary.NativeEndian.Uint32(element[8:])
		key, err := keyOf(id, i, element, position, size)
		if err != nil {
			return err
		}
		if i == 0 && keys.from != nil && !bytes.Equal(key, keys.from) || bytes.Compare(key, last) <= 0 || keys.to != nil && bytes.Compare(key, keys.to) >= 0 {
			return badPage(id, "the key of element %d is out of order", i)
		}
		last = key
		from := uint64(position) + uint64(size)
		to := from + uint64(binary.NativeEndian.Uint32(element[12:]))
		if to > uint64(len(element)) {
			return badPage(id, "element %d is beyond it", i)
		}
		if err := check(id, boltEntry{binary.NativeEndian.Uint32(element), key, element[from:to]}); err != nil {
			return err
		}
	}
	return nil
}

// checkBucket checks a bucket, whose keys are in pages of their own or, if they are few, in its value.
func (p *boltPages) checkBucket(page uint64, bucket boltEntry) error {
	if bucket.flags != 1 || len(bucket.value) < bucketHeader {
		return badPage(page, "it has what is no bucket")
	}
	check := func(page uint64, e boltEntry) error { return checkKey(page, bucket.key, e) }
	if root := binary.NativeEndian.Uint64(bucket.value); root != 0 {
		return p.check(root, 0, keyRange{}, &boltTree{leafDepth: -1, leafBytes: maxPageBytes, entry: check})
	}
	inline := bucket.value[bucketHeader:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != leafPage {
		return badPage(page, "it has a bucket without keys")
	}
	if binary.NativeEndian.Uint64(inline) != 0 || binary.NativeEndian.Uint32(inline[12:]) != 0 {
		return badPage(page, "it has a bucket that says to have pages of its own, and has its keys in its value")
	}
	return checkLeaf(page, inline, keyRange{}, check)
}

// checkKey checks what is in a bucket, and that etcd can count on from the revisions there.
func checkKey(page uint64, bucket []byte, e boltEntry) error {
	if e.flags != 0 {
		return badPage(page, "it has a bucket in a bucket")
	}
	revision := e.key
	switch {
	case bytes.Equal(bucket, schema.Key.Name()):
	case bytes.Equal(bucket, schema.Meta.Name()) && (bytes.Equal(e.key, schema.ScheduledCompactKeyName) || bytes.Equal(e.key, schema.FinishedCompactKeyName)):
		revision = e.value
	default:
		return nil
	}
	const length = 17 // two numbers and a separator; a deletion has a byte more
	if len(revision) != length && len(revision) != length+1 || revision[8] != '_' ||
		binary.BigEndian.Uint64(revision) >= maxCounter || binary.BigEndian.Uint64(revision[9:]) >= maxCounter {
		return badPage(page, "it has what is no revision in bucket %q", bucket)
	}
	return nil
}

func badPage(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d of the snapshot: %s", ErrDamaged, id, fmt.Sprintf(format, args...))
}
