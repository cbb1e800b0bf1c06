// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// TestLargeFrames: a frame beyond the limit ends the connection before anything is kept for it.
func TestLargeFrames(t *testing.T) {
	s := start(t, func(http.ResponseWriter, *http.Request) {})
	for name, tc := range map[string]struct {
		bytes int
		want  http2.FrameType
	}{
		"at the limit": {maxFrame, http2.FramePing},
		"beyond it":    {maxFrame + 1, http2.FrameGoAway},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := s.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			framer := http2.NewFramer(conn, conn)
			go func() { // nothing is written while nothing is read
				_, err := io.WriteString(conn, http2.ClientPreface)
				if err == nil {
					err = framer.WriteSettings()
				}
				const unknown = 0x42 // servers ignore such frames
				if err == nil {
					err = framer.WriteRawFrame(unknown, 0, 0, make([]byte, tc.bytes))
				}
				if err == nil {
					_ = framer.WritePing(false, [8]byte{})
				}
			}()
			for {
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if kind := frame.Header().Type; kind == http2.FramePing || kind == http2.FrameGoAway {
					if kind != tc.want {
						t.Errorf("it is answered with %s, want %s", kind, tc.want)
					}
					return
				}
			}
		})
	}
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}
