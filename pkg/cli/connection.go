// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// connection says which server is asked, as which user, and where the terminal is.
type connection struct {
	flags *genericclioptions.ConfigFlags
	genericiooptions.IOStreams
}

// session is a connection whose flags have been read.
type session struct {
	config    *rest.Config
	namespace string
	agents    typed.AgentsV1alpha1Interface
	kube      kubernetes.Interface
}

// addFlags adds the flags of kubectl that say which server is asked and as whom.
func (c *connection) addFlags(command *cobra.Command, fs *pflag.FlagSet) {
	c.flags.AddFlags(fs)
	// It fails for flags that are not there only.
	_ = command.RegisterFlagCompletionFunc("namespace", c.completeNamespaces)
}

// configure is for every client that is made of the flags.
func (c *connection) configure(config *rest.Config) *rest.Config {
	config.WarningHandler = escapedWarnings{rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{
		Deduplicate: true, Color: printers.AllowsColorOutput(c.ErrOut),
	})}
	return config
}

// open reads the flags.
func (c *connection) open() (*session, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	agents, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the server: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the server: %w", err)
	}
	return &session{config: config, namespace: namespace, agents: agents.AgentsV1alpha1(), kube: kube}, nil
}

// elsewhere is what of the flags a command line has to repeat to reach the same objects.
func (c *connection) elsewhere() string {
	var line strings.Builder
	for _, flag := range []struct {
		name  string
		value *string
	}{{"-n", c.flags.Namespace}, {"--kubeconfig", c.flags.KubeConfig}, {"--context", c.flags.Context},
		{"--cluster", c.flags.ClusterName}, {"--server", c.flags.APIServer}} {
		if value := ptr.Deref(flag.value, ""); value != "" {
			line.WriteString(" " + flag.name + " " + quoted(value))
		}
	}
	return line.String()
}

// plain are words that a shell takes as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// quoted is a word for a command line that is pasted into a shell.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// escapedWarnings escapes what a server warns of.
type escapedWarnings struct{ rest.WarningHandler }

// HandleWarningHeader implements rest.WarningHandler.
func (w escapedWarnings) HandleWarningHeader(code int, agent, text string) {
	w.WarningHandler.HandleWarningHeader(code, agent, printable(text))
}
