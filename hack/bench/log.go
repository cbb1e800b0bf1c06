// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

const (
	keptLines = 3
	// longestLine cuts complaints about a slow disk, which list all keys of a
	// transaction.
	longestLine = 300
)

// logf tells a human what goes on. stdout is for results.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// lastLines keeps the last few lines written to it, the long ones cut.
type lastLines struct {
	mu    sync.Mutex
	lines []string
	rest  []byte
}

// Write implements io.Writer.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.lines = append(l.lines, string(line[:min(len(line), longestLine)]))
		l.lines = l.lines[max(0, len(l.lines)-keptLines):]
		l.rest = rest
	}
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// quietLogs silences the etcd in this process, which warns of every slow write.
// What matters comes back as an error.
func quietLogs() error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
	}
	klog.SetOutput(io.Discard)
	return nil
}
