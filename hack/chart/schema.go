// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

const valuesHeader = `# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Made by hack/chart ("make generate") of values.schema.json, which says the same and holds
# values to it. What is empty here has the value of the install by kustomize.
`

// describe returns values.yaml and the table of the README, which the schema is the source of.
func describe(schema string) (values, table []byte, err error) {
	text, err := os.ReadFile(schema)
	if err != nil {
		return nil, nil, err
	}
	var document yamlv3.Node // JSON is YAML, and this keeps its order
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", schema, err)
	}
	root := decode(document.Content[0]).(*mapping)
	d := &describer{definitions: root.at("definitions"), said: map[string]bool{}}
	d.values.WriteString(valuesHeader)
	d.table.WriteString("| value | default | |\n| --- | --- | --- |\n")
	if err := d.properties(root.at("properties"), "", 0); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", schema, err)
	}
	return d.values.Bytes(), d.table.Bytes(), nil
}

type describer struct {
	definitions   *mapping
	values, table bytes.Buffer
	// said are the descriptions that values.yaml has: what several programs have is
	// described once there.
	said map[string]bool
}

func (d *describer) properties(of *mapping, before string, indent int) error {
	for _, name := range of.keys {
		property := of.at(name)
		if ref := strings.TrimPrefix(property.text("$ref"), "#/definitions/"); ref != "" {
			property = d.definitions.at(ref)
		}
		if name == "global" {
			continue // it is Helm's
		}
		description := property.text("description")
		if description == "" {
			return fmt.Errorf("%s%s has no description", before, name)
		}
		pad := strings.Repeat(" ", indent)
		if indent == 0 {
			d.values.WriteString("\n")
		}
		if !d.said[description] {
			for _, line := range wrap(description, 92-indent) {
				d.values.WriteString(pad + "# " + line + "\n")
			}
			d.said[description] = true
		}
		if value, ok := property.values["default"]; ok {
			text, err := json.Marshal(plain(value))
			if err != nil {
				return err
			}
			fmt.Fprintf(&d.values, "%s%s: %s\n", pad, name, text)
			fmt.Fprintf(&d.table, "| `%s%s` | %s | %s |\n", before, name, shown(string(text)), description)
			continue
		}
		below := property.at("properties")
		if below == nil {
			return fmt.Errorf("%s%s has neither a default nor properties", before, name)
		}
		d.values.WriteString(pad + name + ":\n")
		if err := d.properties(below, before+name+".", indent+2); err != nil {
			return err
		}
	}
	return nil
}

// shown is a default in the table: nothing where the install has its own.
func shown(text string) string {
	switch text {
	case `""`, "[]", "{}", "null":
		return ""
	}
	return "`" + strings.Trim(text, `"`) + "`"
}

// wrap breaks a text into lines.
func wrap(text string, width int) []string {
	var all []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			all = append(all, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(all, line)
}

// tableMark are around the table in the README.
const tableBegin, tableEnd = "<!-- values: made by hack/chart -->\n", "<!-- end of values -->\n"

// withTable returns a file with another table.
func withTable(file string, table []byte) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, end := strings.Cut(rest, tableEnd)
	if !ok || !end {
		return nil, fmt.Errorf("%s has no place for the table of values", file)
	}
	return []byte(before + tableBegin + "\n" + string(table) + "\n" + tableEnd + after), nil
}
