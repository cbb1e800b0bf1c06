// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	utilexec "k8s.io/client-go/util/exec"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// exitNotLooked is the exit code of a check that could not look.
const exitNotLooked = 2

// Formats of findings, beside the one for people.
const (
	formatJSON = "json"
	formatYAML = "yaml"
)

// FindingsPrinter prints findings in the format that its flag says.
type FindingsPrinter struct {
	format string
}

// addFlag adds the flag -o to a command.
func (p *FindingsPrinter) addFlag(command *cobra.Command) {
	command.Flags().StringVarP(&p.format, "output", "o", "", "Output format. One of: (json, yaml).")
	// It fails for flags that are not there only.
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatJSON, formatYAML}, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns an error unless there is a format of the name.
func (p *FindingsPrinter) Validate() error {
	switch p.format {
	case "", formatJSON, formatYAML:
		return nil
	}
	return fmt.Errorf("--output %q: want %s or %s, or nothing for people", p.format, formatJSON, formatYAML)
}

// Print writes findings. Programs get report, which has them in it. People get a line for
// each finding and one for what to do, and summary at the end; of what servers and
// stored objects say they get what a terminal shows as it is.
func (p *FindingsPrinter) Print(w io.Writer, all []findings.Finding, report any, summary string) error {
	switch p.format {
	case formatJSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	case formatYAML:
		text, err := yaml.Marshal(report)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range all {
		line := fmt.Sprintf("%s\t%s\t%s\n", f.Level, f.Check, oneLine(f.Message))
		if f.Action != "" {
			line += fmt.Sprintf("\t\t-> %s\n", oneLine(f.Action))
		}
		if _, err := io.WriteString(table, line); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, summary)
	return err
}

// maxText bounds a text of a finding for people, in bytes. Names of stored objects are in
// them, and answers of servers.
const maxText = 300

// oneLine is a text that a terminal shows as it is, in one line of a bounded length.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.Join(strings.Fields(text), " "))
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// NotLooked is the error of a check that could not look because of err: the program ends
// with 2.
func NotLooked(err error) error { return utilexec.CodeExitError{Err: err, Code: exitNotLooked} }

// FoundErrors is the error of a check that found n errors; nil for none.
func FoundErrors(n int) error {
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("the check found 1 error")
	}
	return fmt.Errorf("the check found %d errors", n)
}
