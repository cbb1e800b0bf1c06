// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podnamespace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte("mounted\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ variable, file, want string }{
		"both":       {variable: "told", file: file, want: "told"},
		"only told":  {variable: "told", file: file + ".not", want: "told"},
		"only there": {file: file, want: "mounted"},
		"neither":    {file: file + ".not"},
	} {
		getenv := func(variable string) string {
			if variable != "POD_NAMESPACE" {
				t.Errorf("%s: asks for %s", name, variable)
			}
			return test.variable
		}
		if got := get(getenv, test.file); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
