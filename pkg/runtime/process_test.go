// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	goruntime "runtime"
	"testing"
)

// TestLongMessagesAreNotKept: a long message takes no memory of the server, because an agent-runtime can
// stop in the middle of it.
func TestLongMessagesAreNotKept(t *testing.T) {
	const length = maxStreamBytes - envelopeHead
	head := binary.BigEndian.AppendUint32([]byte{0}, length)
	whole := bytes.NewReader(append(head, bytes.Repeat([]byte("a"), length)...))
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	_, last, err := readMessage(whole)
	goruntime.ReadMemStats(&after)
	if err != nil || last || whole.Len() != 0 {
		t.Errorf("%v, the last: %t, %d bytes are left", err, last, whole.Len())
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > length/2 {
		t.Errorf("it took %d bytes", took)
	}
	if _, _, err := readMessage(io.MultiReader(bytes.NewReader(head), bytes.NewReader([]byte("a")))); !errors.Is(err, io.EOF) {
		t.Errorf("one that breaks off: %v", err)
	}
}
