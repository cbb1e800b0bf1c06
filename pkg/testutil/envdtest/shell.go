// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shell interprets scripts.
type shell struct {
	files *Files
	env   map[string]string
	// write writes text to stdout or stderr.
	write func(to, text string)
}

// run interprets a script and returns its exit code. A script is commands with ; in
// between, and these are all that there are:
//
//	echo WORD...    with $NAME replaced; >&2 as last word writes to stderr
//	cat FILE        the content of a file
//	env             the environment
//	sleep SECONDS
//	await FILE      waits until there is a file: no real command
//	exit CODE
//
// Quotes are left out, and hold nothing together.
func (s *shell) run(ctx context.Context, script string) int {
	code := 0
	for line := range strings.SplitSeq(script, ";") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "exit" {
			if n, err := strconv.Atoi(strings.Join(words[1:], "")); err == nil {
				return n
			}
			return code
		}
		code = s.command(ctx, words[0], words[1:])
		if ctx.Err() != nil {
			return code
		}
	}
	return code
}

func (s *shell) command(ctx context.Context, name string, args []string) int {
	switch name {
	case "echo":
		to := "stdout"
		if n := len(args); n > 0 && args[n-1] == ">&2" {
			to, args = "stderr", args[:n-1]
		}
		text := strings.NewReplacer(`"`, "", `'`, "").Replace(strings.Join(args, " "))
		s.write(to, os.Expand(text, func(name string) string { return s.env[name] })+"\n")
		return 0
	case "env":
		for _, name := range slices.Sorted(maps.Keys(s.env)) {
			s.write("stdout", name+"="+s.env[name]+"\n")
		}
		return 0
	case "cat":
		return s.cat(strings.Join(args, " "))
	case "sleep":
		return s.sleep(ctx, strings.Join(args, " "))
	case "await":
		return s.await(ctx, strings.Join(args, " "))
	}
	s.write("stderr", fmt.Sprintf("/bin/bash: line 1: %s: command not found\n", name))
	return 127
}

func (s *shell) cat(file string) int {
	content, ok := s.files.Read(file)
	if !ok {
		s.write("stderr", fmt.Sprintf("cat: %s: No such file or directory\n", file))
		return 1
	}
	s.write("stdout", string(content))
	return 0
}

func (s *shell) sleep(ctx context.Context, seconds string) int {
	n, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		s.write("stderr", fmt.Sprintf("sleep: invalid time interval '%s'\n", seconds))
		return 1
	}
	select {
	case <-time.After(time.Duration(n * float64(time.Second))):
	case <-ctx.Done():
	}
	return 0
}

func (s *shell) await(ctx context.Context, file string) int {
	for {
		changed, there := s.files.await(file)
		if there {
			return 0
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 1
		}
	}
}
