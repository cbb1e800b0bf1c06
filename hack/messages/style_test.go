// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// unformed are the files that log messages which are no constants, and why they do.
var unformed = map[string]string{
	"pkg/store/embeddedetcd/failure.go":       "the messages are those of etcd",
	"pkg/install/certificates/report.go":      "the messages are those of events",
	"pkg/install/encryptionkeys/reconcile.go": "the message is that of an event",
	"pkg/install/encryptionkeys/report.go":    "the messages are those of events",
}

// key is how the facts of a log line are named.
var key = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// refusal are the openings for which "Failed to" is written.
var refusal = regexp.MustCompile(`^(Cannot|Can not|Could not|Unable|Error|Failure)\b`)

// TestLogLines: a line says in one sentence what happened, without its full stop, and has the
// facts as keys.
func TestLogLines(t *testing.T) {
	lines, made := 0, map[string]bool{}
	eachFile(t, func(name string, set *token.FileSet, file *ast.File) {
		for _, message := range Logs(file) {
			lines++
			where := fmt.Sprintf("%s:%d", name, set.Position(message.Pos).Line)
			if !message.Constant {
				if made[name] = true; unformed[name] == "" {
					t.Errorf("%s logs a message that is no constant: use InfoS or ErrorS, and keys", where)
				}
				continue
			}
			if problem := logProblem(message.Text); problem != "" {
				t.Errorf("%s: %q %s", where, message.Text, problem)
			}
			for _, expr := range message.Keys {
				if name, ok := Text(expr); !ok || !key.MatchString(name) {
					t.Errorf("%s has a key that is no constant in camelCase", where)
				}
			}
		}
	})
	if lines == 0 {
		t.Error("no log lines were found")
	}
	for name := range unformed {
		if !made[name] {
			t.Errorf("all messages of %s are constants", name)
		}
	}
}

func logProblem(text string) string {
	switch {
	case !startsUpper(text):
		return "does not begin with a capital letter"
	case strings.ContainsAny(text[len(text)-1:], ".!?:"):
		return "ends with a full stop or the like"
	case strings.Contains(text, ". ") || strings.Contains(text, "; ") || strings.Contains(text, ": ") || strings.Contains(text, "\n"):
		return "joins several facts: log one, and give the others as keys"
	case refusal.MatchString(text):
		return `does not begin with "Failed to"`
	}
	return ""
}

// TestFlagDescriptions: they are sentences, which help shows one below the other.
func TestFlagDescriptions(t *testing.T) {
	flags := 0
	eachFile(t, func(name string, set *token.FileSet, file *ast.File) {
		for _, message := range Flags(file) {
			flags++
			where := fmt.Sprintf("%s:%d", name, set.Position(message.Pos).Line)
			switch text := message.Text; {
			case !message.Constant:
				t.Errorf("%s has a flag whose description is no constant", where)
			case !startsUpper(text):
				t.Errorf("%s: %q does not begin with a capital letter", where, text)
			case !strings.HasSuffix(text, "."):
				t.Errorf("%s: %q does not end with a full stop", where, text)
			}
		}
	})
	if flags == 0 {
		t.Error("no flags were found")
	}
}

func startsUpper(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return unicode.IsUpper(first)
}

// TestFinds: what is logged and described is found in all the ways to do so.
func TestFinds(t *testing.T) {
	file := parse(t, `package p
func f() {
	klog.InfoS("A", "keyOne", 1)
	klog.V(2).InfoS("B")
	klog.ErrorS(err, "C")
	klog.Infof("%d", 1)
	klog.FromContext(ctx).V(4).Info("D", "keyTwo", 2)
	klog.FromContext(ctx).WithValues("a", 1).Error(err, "E")
	s.logger.Error(err, "F" +
		" and G")
	log.Info(made())
	t.Error("no log line")
	fs.StringVar(&o.name, "some-flag", "", "H")
	cmd.Flags().IntVarP(&o.n, "n", "n", 1, ""+
		"I")
	fs.StringVar(&o.name, name, "", "no flag")
}`)
	if got, want := summary(Logs(file)), `"A" 1, "B" 0, "C" 0, made, "D" 1, "E" 0, "F and G" 0, made`; got != want {
		t.Errorf("found log lines %s, want %s", got, want)
	}
	if got, want := summary(Flags(file)), `"H" 0, "I" 0`; got != want {
		t.Errorf("found flags %s, want %s", got, want)
	}
}

func parse(t *testing.T, source string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// summary is the text of messages, and how many keys they have.
func summary(messages []Message) string {
	var parts []string
	for _, m := range messages {
		if !m.Constant {
			parts = append(parts, "made")
			continue
		}
		parts = append(parts, fmt.Sprintf("%q %d", m.Text, len(m.Keys)))
	}
	return strings.Join(parts, ", ")
}
