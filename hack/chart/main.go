// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart writes the Helm chart of artifacts/deploy/chart/sandlot from what is beside
// it: the templates from the kustomize bases and components, values.yaml and the table of
// its README from values.schema.json, the version from the tag of the images, and the
// dashboard and the alerts from artifacts/dashboard. The rest is by hand: the schema, and the
// templates that have no source in kustomize.
//
// Each choice of the chart is a component. It is rendered over the same base as the others,
// and where it differs from the base, the template has a condition (merge.go). Where a value
// of the chart takes the place of what the install says, edits.go tells.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// generated is the folder of the templates that this program writes, below templates.
const generated = "install"

func main() {
	root := flag.String("root", "../..", "Folder of the main module.")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

func run(root string) error {
	deploy := filepath.Join(root, "artifacts", "deploy")
	chart := filepath.Join(deploy, "chart", "sandlot")
	templates, err := makeTemplates(deploy)
	if err != nil {
		return err
	}
	values, table, err := describe(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		return err
	}
	readme, err := withTable(filepath.Join(chart, "README.md"), table)
	if err != nil {
		return err
	}
	version, err := versionOf(deploy)
	if err != nil {
		return err
	}
	about, err := withVersion(filepath.Join(chart, "Chart.yaml"), version)
	if err != nil {
		return err
	}
	files := map[string][]byte{"Chart.yaml": about, "values.yaml": values, "README.md": readme}
	for name, content := range templates {
		files[filepath.Join("templates", generated, name)] = content
	}
	for _, name := range []string{"alerts.yaml", "sandlot.json"} {
		content, err := os.ReadFile(filepath.Join(root, "artifacts", "dashboard", name))
		if err != nil {
			return err
		}
		files[filepath.Join("files", name)] = content
	}
	// What has gone from the sources goes from the chart.
	if err := errors.Join(os.RemoveAll(filepath.Join(chart, "templates", generated)), os.RemoveAll(filepath.Join(chart, "files"))); err != nil {
		return err
	}
	for name, content := range files {
		file := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeTemplates returns the templates by the name of their file.
func makeTemplates(deploy string) (map[string][]byte, error) {
	base, err := render(deploy, &choice{})
	if err != nil {
		return nil, fmt.Errorf("the base: %w", err)
	}
	choices := slices.Concat([]*choice{stopped}, stores, others)
	variants := make([]rendering, 0, len(choices))
	for _, c := range choices {
		v, err := render(deploy, c)
		if err != nil {
			return nil, fmt.Errorf("components %v: %w", append(c.components, c.over...), err)
		}
		variants = append(variants, v)
	}
	return emit(mergeObjects(base, variants)), nil
}
