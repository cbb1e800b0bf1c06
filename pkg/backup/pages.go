// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
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
	// maxPageBytes is how many bytes a page has with those that it goes on in. It has a few keys,
	// and etcd takes no request as large.
	maxPageBytes = 256 << 20
)

// boltPages checks the pages of a bbolt database. bbolt maps the file into memory and believes what
// its pages say of where others are: with a forged one it would read elsewhere, and the process
// would end, which no code can prevent then.
type boltPages struct {
	file     io.ReaderAt
	pageSize uint64
	// end is the first page that the database does not have.
	end uint64
	// seen are the pages that were read.
	seen []bool
}

// checkPages returns ErrDamaged if a file of a size is no bbolt database as etcd writes it into a
// snapshot: each page is within the file and used once, and there are no buckets in buckets.
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
	return p.check(first.root, 0, p.checkBucket)
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

// read returns a page with those that it goes on in, which no other page may use.
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
		if free := binary.NativeEndian.Uint64(ids[8*i:]); free < 2 || free >= p.end {
			return badPage(id, "page %d is free, and there are %d", free, p.end)
		}
	}
	return nil
}

// check checks a page with those below it, and calls leaf for each key.
func (p *boltPages) check(id uint64, depth int, leaf func(page uint64, flags uint32, value []byte) error) error {
	if depth > maxPageDepth {
		return badPage(id, "it is below %d others", depth)
	}
	page, err := p.read(id)
	if err != nil {
		return err
	}
	if flags := binary.NativeEndian.Uint16(page[8:]); flags == leafPage {
		return checkLeaf(id, page, leaf)
	} else if flags != branchPage {
		return badPage(id, "it has flags %#x", flags)
	}
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if count == 0 || pageHeader+count*pageElement > len(page) {
		return badPage(id, "it has %d elements", count)
	}
	below := make([]uint64, count) // so that the page is not kept while these are checked
	for i := range below {
		element := page[pageHeader+i*pageElement:]
		position, key := uint64(binary.NativeEndian.Uint32(element)), uint64(binary.NativeEndian.Uint32(element[4:]))
		if position+key > uint64(len(element)) {
			return badPage(id, "element %d is beyond it", i)
		}
		below[i] = binary.NativeEndian.Uint64(element[8:])
	}
	for _, next := range below {
		if err := p.check(next, depth+1, leaf); err != nil {
			return err
		}
	}
	return nil
}

// checkLeaf checks the elements of a page, or of what replaces one.
func checkLeaf(id uint64, page []byte, leaf func(page uint64, flags uint32, value []byte) error) error {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if pageHeader+count*pageElement > len(page) {
		return badPage(id, "it has %d elements", count)
	}
	for i := range count {
		element := page[pageHeader+i*pageElement:]
		flags, position := binary.NativeEndian.Uint32(element), uint64(binary.NativeEndian.Uint32(element[4:]))
		key, value := uint64(binary.NativeEndian.Uint32(element[8:])), uint64(binary.NativeEndian.Uint32(element[12:]))
		if position+key+value > uint64(len(element)) {
			return badPage(id, "element %d is beyond it", i)
		}
		if err := leaf(id, flags, element[position+key:position+key+value]); err != nil {
			return err
		}
	}
	return nil
}

// checkBucket checks a bucket, whose keys are in pages of their own or, if they are few, in its value.
func (p *boltPages) checkBucket(page uint64, flags uint32, value []byte) error {
	if flags != 1 || len(value) < bucketHeader {
		return badPage(page, "it has what is no bucket")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.check(root, 0, checkKey)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != leafPage {
		return badPage(page, "it has a bucket without keys")
	}
	return checkLeaf(page, inline, checkKey)
}

// checkKey checks what is in a bucket.
func checkKey(page uint64, flags uint32, _ []byte) error {
	if flags != 0 {
		return badPage(page, "it has a bucket in a bucket")
	}
	return nil
}

func badPage(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d of the snapshot: %s", ErrDamaged, id, fmt.Sprintf(format, args...))
}
