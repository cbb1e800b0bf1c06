// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
)

// none fills a cell that has nothing to say, as in the tables of the server.
const none = "<none>"

// output prints a table for people, or objects in the formats of kubectl.
type output struct {
	*genericclioptions.PrintFlags
	noHeaders bool
	to        io.Writer
}

// newOutput adds the flags of printing to w to a command. done is what has become of
// objects that are printed by name, such as "claimed".
func newOutput(command *cobra.Command, w io.Writer, done string) *output {
	o := &output{to: w, PrintFlags: genericclioptions.NewPrintFlags(done).WithTypeSetter(scheme.Scheme)}
	o.AddFlags(command)
	command.Flags().Lookup("output").Usage = "Output format. One of: (wide, " + strings.Join(o.AllowedFormats(), ", ") + ")."
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print tables without their headers.")
	formats := append([]string{"wide"}, o.AllowedFormats()...)
	// It fails for flags that are not there only.
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// wide reports whether a table has all its columns.
func (o *output) wide() bool { return *o.OutputFormat == "wide" }

// table reports whether people read what is printed.
func (o *output) table() bool {
	return o.wide() || *o.OutputFormat == "" && *o.TemplatePrinterFlags.TemplateArgument == ""
}

// printer returns the printer of the format. It is found out before anything is done
// whether there is one.
func (o *output) printer() (printers.ResourcePrinter, error) {
	if o.table() {
		return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, Wide: o.wide()}), nil
	}
	printer, err := o.ToPrinter()
	if missing := (genericclioptions.NoCompatiblePrinterError{}); errors.As(err, &missing) {
		missing.AllowedFormats = append([]string{"wide"}, missing.AllowedFormats...)
		return nil, missing
	}
	return printer, err
}

// column is a column of text. wide ones are shown with -o wide only.
type column struct {
	name string
	wide bool
}

// newTable returns a table of text. Each row has a cell for every column.
func newTable(columns []column, rows [][]string) *metav1.Table {
	table := &metav1.Table{}
	for _, c := range columns {
		definition := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	for _, cells := range rows {
		row := metav1.TableRow{}
		for _, cell := range cells {
			row.Cells = append(row.Cells, orNone(printable(cell)))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// printAll prints objects as kubectl does: by name one after the other, else as one list.
func printAll[T runtime.Object](o *output, printer printers.ResourcePrinter, objects []T) error {
	list := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for _, object := range objects {
		if *o.OutputFormat == "name" {
			if err := printer.PrintObj(object, o.to); err != nil {
				return err
			}
			continue
		}
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			return err
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0]) // lists leave it out
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	if *o.OutputFormat == "name" {
		return nil
	}
	return printer.PrintObj(list, o.to)
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}
