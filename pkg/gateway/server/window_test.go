// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// The types of HTTP/2 frames, and the flags, that are of use here.
const (
	headersFrame  = 1
	resetFrame    = 3
	settingsFrame = 4
	pingFrame     = 6

	ack        = 1
	endHeaders = 4
	endStream  = 1
)

// closedWindow is a client of HTTP/2 that lives, and lets no one send it any data.
type closedWindow struct {
	net.Conn
	// reset gets the streams that the server gives up, and is closed at the end of the
	// connection.
	reset chan uint32
}

func (s *served) closedWindow(t *testing.T) *closedWindow {
	t.Helper()
	conn, err := s.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	c := &closedWindow{conn, make(chan uint32, 10)}
	go c.read()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.frame(settingsFrame, 0, 0, []byte{0, 4, 0, 0, 0, 0}); err != nil { // the initial window is 0
		t.Fatal(err)
	}
	if err := c.frame(headersFrame, endHeaders|endStream, 1, []byte{0x82, 0x86, 0x84}); err != nil { // GET http://.../
		t.Fatal(err)
	}
	return c
}

func (c *closedWindow) frame(kind, flags byte, stream uint32, content []byte) error {
	frame := []byte{0, 0, byte(len(content)), kind, flags}
	frame = append(binary.BigEndian.AppendUint32(frame, stream), content...)
	_, err := c.Write(frame)
	return err
}

// read answers what shows that the client lives.
func (c *closedWindow) read() {
	defer close(c.reset)
	var head [9]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		content := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, content); err != nil {
			return
		}
		var err error
		switch kind, flags := head[3], head[4]; {
		case kind == resetFrame:
			c.reset <- binary.BigEndian.Uint32(head[5:])
		case kind == settingsFrame && flags&ack == 0:
			err = c.frame(settingsFrame, ack, 0, nil)
		case kind == pingFrame && flags&ack == 0:
			err = c.frame(pingFrame, ack, 0, content)
		}
		if err != nil {
			return
		}
	}
}

// TestClosedWindow: a client that takes nothing of its answer is dropped, however much it
// shows that it lives.
func TestClosedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short, so it is sent when the handler has returned")
		})
		c := s.closedWindow(t)
		defer c.Close()
		time.Sleep(2 * responseStallTimeout)
		select {
		case stream, open := <-c.reset:
			if stream != 1 || !open {
				t.Errorf("stream %d is reset, and the connection open: %t", stream, open)
			}
		default:
			t.Error("the stream is not reset")
		}
		time.Sleep(2 * idleTimeout)
		select {
		case _, open := <-c.reset:
			if open {
				t.Error("another stream is reset")
			}
		default:
			t.Error("the connection is not closed")
		}
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestClosedWindowAtEnd: nor does it hold up the end of the process.
func TestClosedWindowAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := errors.New("it has not ended")
		s := start(t, func(w http.ResponseWriter, _ *http.Request) { _, cut = w.Write(make([]byte, 1<<20)) })
		c := s.closedWindow(t)
		defer c.Close()
		synctest.Wait()
		s.stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		if cut == nil {
			t.Error("what nobody took was written")
		}
		if _, open := <-c.reset; open {
			t.Error("the connection is open")
		}
	})
}
