// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

const header = `{{- /*
Copyright The Sandlot Authors.
SPDX-License-Identifier: Apache-2.0

Made by hack/chart ("make generate") of artifacts/deploy/%s,
where comments are, and of the components that change it.
*/}}
`

// emit writes templates, and returns them by the name of their file.
func emit(templates []template) map[string][]byte {
	files := map[string][]byte{}
	for len(templates) > 0 {
		file := templates[0].file
		w := &writer{}
		fmt.Fprintf(w, header, templates[0].source)
		var objects []entry
		for len(templates) > 0 && templates[0].file == file {
			objects = append(objects, entry{condition: templates[0].condition, value: templates[0].content})
			templates = templates[1:]
		}
		w.runs(objects, 0, func(e entry) {
			w.line(0, "---")
			w.entries(e.value.(entries), 0)
		})
		files[file] = w.Bytes()
	}
	return files
}

type writer struct{ bytes.Buffer }

func (w *writer) line(indent int, text string) {
	w.WriteString(strings.Repeat(" ", indent) + text + "\n")
}

// where writes what has a condition.
func (w *writer) where(condition string, indent int, write func()) {
	if condition == "" {
		write()
		return
	}
	w.line(indent, "{{- if "+condition+" }}")
	write()
	w.line(indent, "{{- end }}")
}

// runs calls write for each run of entries with one condition.
func (w *writer) runs(all []entry, indent int, write func(entry)) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].condition == all[0].condition {
			n++
		}
		w.where(all[0].condition, indent, func() {
			for _, e := range all[:n] {
				write(e)
			}
		})
		all = all[n:]
	}
}

func (w *writer) entries(all entries, indent int) {
	w.runs(all, indent, func(e entry) { w.entry(e, indent) })
}

func (w *writer) entry(e entry, indent int) {
	switch value := e.value.(type) {
	case lines:
		w.lines(value, indent)
	case override:
		w.line(indent, "{{- with "+value.value+" }}")
		if value.scalar {
			w.line(indent, e.key+": {{ toYaml . }}")
		} else {
			w.line(indent, e.key+":")
			w.line(indent+2, "{{- toYaml . | nindent "+strconv.Itoa(indent+2)+" }}")
		}
		if len(value.own) > 0 {
			w.line(indent, "{{- else }}")
			w.entries(value.own, indent)
		}
		w.line(indent, "{{- end }}")
	case cases:
		w.cases(value, indent, scalar(e.key)+": ")
	case entries:
		if len(value) == 0 {
			w.line(indent, scalar(e.key)+": {}")
			return
		}
		w.line(indent, scalar(e.key)+":")
		w.entries(value, indent+2)
	case items:
		if len(value) == 0 {
			w.line(indent, scalar(e.key)+": []")
			return
		}
		w.line(indent, scalar(e.key)+":")
		w.items(value, indent)
	default:
		w.line(indent, scalar(e.key)+": "+scalar(value))
	}
}

func (w *writer) items(all items, indent int) {
	w.runs(all, indent, func(e entry) {
		switch value := e.value.(type) {
		case lines:
			w.lines(value, indent)
		case cases:
			w.cases(value, indent, "- ")
		case entries:
			// The first entry is behind the dash.
			below := &writer{}
			below.entries(value, indent+2)
			text := below.String()
			switch {
			case text == "":
				w.line(indent, "- {}")
			case strings.HasPrefix(strings.TrimLeft(text, " "), "{{-"):
				w.line(indent, "-")
				w.WriteString(text)
			default:
				w.WriteString(text[:indent] + "- " + text[indent+2:])
			}
		default:
			w.line(indent, "- "+scalar(value))
		}
	})
}

func (w *writer) cases(all cases, indent int, before string) {
	for i, e := range all {
		switch {
		case i == 0:
			w.line(indent, "{{- if "+e.condition+" }}")
		case e.condition != "":
			w.line(indent, "{{- else if "+e.condition+" }}")
		default:
			w.line(indent, "{{- else }}")
		}
		w.line(indent, before+scalar(e.value))
	}
	w.line(indent, "{{- end }}")
}

func (w *writer) lines(text lines, indent int) {
	filled := strings.NewReplacer("INDENT2", strconv.Itoa(indent+2), "INDENT", strconv.Itoa(indent)).Replace(string(text))
	for line := range strings.SplitSeq(filled, "\n") {
		w.line(indent, line)
	}
}

// scalar writes a value on one line.
func scalar(value any) string {
	switch value := value.(type) {
	case expression:
		return "{{ " + string(value) + " }}"
	case nil:
		return "null"
	case string:
		if strings.Contains(value, "\n") {
			return escape(strconv.Quote(value))
		}
	}
	text, err := yamlv3.Marshal(value)
	if err != nil {
		panic(err) // of a scalar that was read from YAML
	}
	return escape(strings.TrimSpace(string(text)))
}

// escape keeps Helm from what looks as if it were for it.
func escape(text string) string {
	return inRelease(strings.ReplaceAll(text, "{{", `{{ "{{" }}`))
}
