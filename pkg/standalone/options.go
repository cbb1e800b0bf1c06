// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/gateway/server"
)

// What runs in sandboxes.
const (
	// SandboxesSimulated is nothing: sandboxes only have a status.
	SandboxesSimulated = "simulated"
	// SandboxesProcesses is an agent-runtime for each sandbox that declares one, as a process of this machine.
	SandboxesProcesses = "processes"
)

// Options are what the command line says about a run.
type Options struct {
	// DataDir holds all that is to survive the run.
	DataDir string
	// BindAddress and SecurePort are where the API is served.
	BindAddress net.IP
	SecurePort  int
	// Kubeconfig is the file to write for clients. Empty means one in DataDir.
	Kubeconfig string
	// SimulatedStartDelay is how long a simulated sandbox takes to start.
	SimulatedStartDelay time.Duration
	// Sandboxes is what runs in sandboxes: SandboxesSimulated or SandboxesProcesses.
	Sandboxes string
	// RuntimeProgram is the path of sandlot-runtime, for SandboxesProcesses. Empty is beside this program, or in PATH.
	RuntimeProgram string
	// MaxProcesses is how many sandboxes have a process at the same time, for SandboxesProcesses.
	MaxProcesses int
	// SyncWindow is how long a create of a claim may wait for sandboxes.
	SyncWindow time.Duration
	// MaxWaitingCreates is how many creates of claims wait at the same time; 0 is half of the changes that
	// are handled at a time.
	MaxWaitingCreates int
	// ClaimLimits bound what claims may ask for and bring.
	ClaimLimits options.ClaimLimits
	// Runtimes are the certificates for agent-runtimes.
	Runtimes options.Runtimes
	// E2BAddress is where the E2B API is served, over HTTP; empty serves none.
	E2BAddress string
	// E2B is how.
	E2B server.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		DataDir:             defaultDataDir(),
		BindAddress:         net.IPv4(127, 0, 0, 1),
		SecurePort:          6543,
		SimulatedStartDelay: 200 * time.Millisecond,
		Sandboxes:           SandboxesSimulated,
		MaxProcesses:        100,
		SyncWindow:          apiserver.DefaultSyncWindow,
		ClaimLimits:         options.NewClaimLimits(),
		E2B:                 newE2BOptions(),
	}
}

// AddFlags adds the flags of the options to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "Directory for all data that is kept between runs. It is created if it does not exist.")
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress, "Address to serve the API on.")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port to serve the API on. 0 means any free port.")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, ""+
		"File to write the kubeconfig to. Other contexts in it are kept. The default is kubeconfig in the data directory.")
	fs.DurationVar(&o.SimulatedStartDelay, "simulated-start-delay", o.SimulatedStartDelay, "Time that a simulated Sandbox takes to become Running.")
	fs.StringVar(&o.Sandboxes, "sandboxes", o.Sandboxes, ""+
		"What runs in Sandboxes: simulated (nothing), or processes (an agent-runtime for each Sandbox that declares one, as a process of this machine). "+
		"Processes isolate nothing: commands run as the current user. Use them for your own code only.")
	fs.StringVar(&o.RuntimeProgram, "runtime-program", o.RuntimeProgram, ""+
		"Path of sandlot-runtime, for --sandboxes=processes. The default is the program beside this one, or in PATH.")
	fs.IntVar(&o.MaxProcesses, "max-processes", o.MaxProcesses, ""+
		"Maximum number of Sandboxes that have a process at the same time, for --sandboxes=processes. Others wait in Pending.")
	fs.DurationVar(&o.SyncWindow, "sync-window", o.SyncWindow, ""+
		"Maximum time that the creation of a SandboxClaim waits for Sandboxes before the response is sent with those that were bound.")
	fs.IntVar(&o.MaxWaitingCreates, "max-waiting-creates", o.MaxWaitingCreates, ""+
		"Maximum number of create requests of SandboxClaims that wait at the same time. Further ones are answered with Claiming immediately. "+
		"0 means half of the mutating requests in flight.")
	o.ClaimLimits.AddFlags(fs)
	o.Runtimes.AddFlags(fs)
	fs.StringVar(&o.E2BAddress, "e2b-address", o.E2BAddress, ""+
		"Address (host:port) to serve the E2B API on over plain HTTP. Port 0 selects a free port. If it is not set, the API is not served.")
}

// Complete fills in what is derived from other options.
func (o *Options) Complete() error {
	if o.Kubeconfig == "" && o.DataDir != "" {
		o.Kubeconfig = filepath.Join(o.DataDir, "kubeconfig")
	}
	for _, path := range []*string{&o.DataDir, &o.Kubeconfig} {
		if *path == "" {
			continue
		}
		// They are shown to the user, who may be in another folder by then.
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("%s: %w", *path, err)
		}
		*path = absolute
	}
	return nil
}

// Validate returns all errors of the options. The API server validates those
// that are handed on to it.
func (o *Options) Validate() error {
	var errs []error
	if o.DataDir == "" {
		errs = append(errs, errors.New("--data-dir is required: there is no home folder to find a default in"))
	}
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d is not between 0 and 65535", o.SecurePort))
	}
	if o.SimulatedStartDelay < 0 {
		errs = append(errs, errors.New("--simulated-start-delay must not be negative"))
	}
	switch o.Sandboxes {
	case SandboxesSimulated:
	case SandboxesProcesses:
		errs = append(errs, o.validateProcesses()...)
	default:
		errs = append(errs, fmt.Errorf("--sandboxes %q is neither %s nor %s", o.Sandboxes, SandboxesSimulated, SandboxesProcesses))
	}
	if o.E2BAddress != "" {
		if _, _, err := net.SplitHostPort(o.E2BAddress); err != nil {
			errs = append(errs, fmt.Errorf("--e2b-address: %w", err))
		}
	}
	return utilerrors.NewAggregate(errs)
}

// validateProcesses returns the errors of options for SandboxesProcesses. Commands in sandboxes run as the current user, so
// other machines must not be able to run any.
func (o *Options) validateProcesses() []error {
	var errs []error
	if runtime.GOOS != "linux" {
		errs = append(errs, errors.New("--sandboxes=processes needs Linux"))
	}
	if o.MaxProcesses < 1 {
		errs = append(errs, errors.New("--max-processes must be positive"))
	}
	const refused = "--sandboxes=processes lets clients run commands as the current user, so %s must be a loopback address"
	if !o.BindAddress.IsLoopback() {
		errs = append(errs, fmt.Errorf(refused, "--bind-address"))
	}
	if host, _, err := net.SplitHostPort(o.E2BAddress); err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		errs = append(errs, fmt.Errorf(refused, "the host of --e2b-address"))
	}
	return errs
}

// defaultDataDir follows the XDG base directories. It is empty if the user has
// no home.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sandlot")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "sandlot")
}
