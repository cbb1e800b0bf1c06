// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"bytes"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	// shownStates is how many states of sandboxes keep their encodings: those that watches
	// send at about the same time.
	shownStates = 64
	// shownBytes is how many bytes of encodings one state keeps at most.
	shownBytes = 512 << 10
)

// cachingSandboxes are the sandboxes that watches have sent last. A pod template has up to
// 256 KiB, so each state of a sandbox is encoded once for all watches, as the watch cache
// does with what is stored.
type cachingSandboxes struct {
	mu     sync.Mutex
	states *lru.Cache // of *cachingSandbox, by cachingKey
}

func newCachingSandboxes() *cachingSandboxes { return &cachingSandboxes{states: lru.New(shownStates)} }

// cachingKey is a state of a sandbox, and a state of the template that it is shown with. If a
// sandbox no longer matches the selector of a watch, the watch sends the state from before that
// with the new resourceVersion, as deleted.
type cachingKey struct {
	uid      types.UID
	version  string
	deleted  bool
	template *runtime.RawExtension
}

// get returns the sandbox of an event with a template, to be sent by any number of watches.
func (e *cachingSandboxes) get(event watch.EventType, sandbox *v1alpha1.Sandbox, template *runtime.RawExtension) *cachingSandbox {
	key := cachingKey{sandbox.UID, sandbox.ResourceVersion, event == watch.Deleted, template}
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.states.Get(key); ok {
		return known.(*cachingSandbox)
	}
	shown := &cachingSandbox{sandbox: with(sandbox, template), texts: map[runtime.Identifier][]byte{}}
	e.states.Add(key, shown)
	return shown
}

// cachingSandbox is a sandbox that caches its encodings.
type cachingSandbox struct {
	sandbox *v1alpha1.Sandbox // never changed

	mu    sync.Mutex
	texts map[runtime.Identifier][]byte
	bytes int
}

var _ runtime.CacheableObject = &cachingSandbox{}

// GetObject implements runtime.CacheableObject. Encoders set the kind of what they are given.
func (e *cachingSandbox) GetObject() runtime.Object {
	shown := *e.sandbox
	return &shown
}

// GetObjectKind implements runtime.Object.
func (e *cachingSandbox) GetObjectKind() schema.ObjectKind { return e.GetObject().GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (e *cachingSandbox) DeepCopyObject() runtime.Object { return e.sandbox.DeepCopy() }

// CacheEncode implements runtime.CacheableObject.
func (e *cachingSandbox) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	text, err := e.encoded(id, encode)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func (e *cachingSandbox) encoded(id runtime.Identifier, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text, ok := e.texts[id]; ok {
		return text, nil
	}
	var text bytes.Buffer
	if err := encode(e.GetObject(), &text); err != nil {
		return nil, err
	}
	if e.bytes+text.Cap() <= shownBytes {
		e.texts[id] = text.Bytes()
		e.bytes += text.Cap()
	}
	return text.Bytes(), nil
}
