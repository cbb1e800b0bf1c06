// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	apiserverapp "github.com/sandlot-io/sandlot/pkg/apiserver/app"
	"github.com/sandlot-io/sandlot/pkg/cli"
	gatewayapp "github.com/sandlot-io/sandlot/pkg/gateway/app"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/standalone"
)

// programs are ours, by how they are called.
var programs = map[string]func() *cobra.Command{
	"sandlot": func() *cobra.Command { return standalone.NewCommand(discard()) },
	"kubectl sandlot": func() *cobra.Command {
		return cli.NewPluginCommand(discard(), []string{"kubectl-sandlot"})
	},
	"sandlot-apiserver":          apiserverapp.NewCommand,
	"sandlot-controller-manager": manager.NewCommand,
	"sandlot-gateway":            gatewayapp.NewCommand,
}

func discard() genericiooptions.IOStreams {
	return genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
}

var (
	// continued is a command that continues in the next line.
	continued = regexp.MustCompile(`\\\n\s*`)
	// separator is between two commands, and before a comment.
	separator = regexp.MustCompile(`\n|\||;|&&|\$\(|\)|\s#.*`)
	// shellWord is a word with its quotes.
	shellWord = regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
	quotes    = strings.NewReplacer(`'`, "", `"`, "")
	target    = regexp.MustCompile(`(?m)^([a-z0-9/-]+):`)
)

// TestDocumentedCommands: the commands of our programs in the docs are there and have the flags
// that the docs give them, and make has the targets.
func TestDocumentedCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, match := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[match[1]] = true
	}
	checked := 0
	for _, s := range snippets(t) {
		if s.language != inShell {
			continue
		}
		for _, command := range separator.Split(continued.ReplaceAllString(s.text, " "), -1) {
			words := shellWord.FindAllString(command, -1)
			for i := range words {
				words[i] = quotes.Replace(words[i])
			}
			for len(words) > 0 && strings.Contains(words[0], "=") { // a variable for the command
				words = words[1:]
			}
			if len(words) == 0 {
				continue
			}
			switch name, rest := path.Base(words[0]), words[1:]; {
			case name == "make":
				checked++
				checkTargets(t, s.place, targets, rest)
			case name == "kubectl" && len(rest) > 0 && rest[0] == "sandlot":
				checked++
				checkCommand(t, s.place, programs["kubectl sandlot"](), rest[1:])
			case programs[name] != nil:
				checked++
				checkCommand(t, s.place, programs[name](), rest)
			}
		}
	}
	if checked < 40 {
		t.Errorf("the docs have %d commands only", checked)
	}
}

func checkTargets(t *testing.T, place string, targets map[string]bool, words []string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(word, "=") && !targets[word] {
			t.Errorf("%s: there is no make %s", place, word)
		}
	}
}

// checkCommand finds the command that words call, and parses its flags.
func checkCommand(t *testing.T, place string, root *cobra.Command, words []string) {
	t.Helper()
	if len(words) > 0 && words[len(words)-1] == "…" { // and so on
		words = words[:len(words)-1]
	}
	command, rest, err := root.Find(words)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil {
		t.Errorf("%s: %s %s: %v", place, root.CommandPath(), strings.Join(words, " "), err)
	}
}
