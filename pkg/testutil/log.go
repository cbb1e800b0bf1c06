// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"flag"
	"io"

	"k8s.io/klog/v2"
)

// A failing test prints all that its process logged. Of servers that start and
// stop by the dozen only the errors are worth that.
func init() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "ERROR"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
}
