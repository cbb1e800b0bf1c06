// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package users

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
)

// TestCallsThatHang: when all threads hang, as in a volume whose server is away, a call does not wait for one for
// longer than its client, and never for ever.
func TestCallsThatHang(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("NOT TESTED: this test acts as another user, so it needs root")
		return
	}
	other, err := Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var hanging sync.WaitGroup
	for range maxThreads {
		hanging.Go(func() {
			err := other.Do(t.Context(), func() error {
				begun <- struct{}{}
				<-goOn
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range maxThreads {
		<-begun
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := func() error { return errors.New("it was called") }
	if err := other.Do(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("the client is gone: %v", err)
	}
	if err := other.Do(t.Context(), never); !errors.Is(err, ErrBusy) {
		t.Errorf("no thread is free: %v", err)
	}
	if err := Own().Do(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("our own user needs no thread: %v", err)
	}
	close(goOn)
	hanging.Wait()
	if err := other.Do(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("threads are free again: %v", err)
	}
}
