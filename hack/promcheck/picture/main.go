// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command picture draws a Grafana dashboard as it looks on a server of its own, that
// some claims are made of:
//
//	picture --root REPOSITORY DASHBOARD.json PICTURE.svg
//
// It takes bin/sandlot and bin/kubectl of the repository, scrapes the server's metrics
// with them, evaluates the queries of the panels with Prometheus' own engine, and
// leaves nothing running. It is a drawing of the same figures, not one of Grafana.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/sandlot-io/sandlot/hack/promcheck/grafana"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	lasts := flag.Duration("for", 75*time.Second, "how long to scrape")
	flag.Parse()
	if err := run(context.Background(), *root, *lasts, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, lasts time.Duration, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: picture --root REPOSITORY DASHBOARD.json PICTURE.svg")
	}
	d, err := grafana.Read(args[0])
	if err != nil {
		return err
	}
	seen, err := watch(ctx, root, lasts)
	if err != nil {
		return err
	}
	plots, err := evaluate(ctx, d, seen)
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], []byte(draw(d.Title, plots)), 0o644)
}
