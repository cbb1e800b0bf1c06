// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime_test

import (
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

func TestAddress(t *testing.T) {
	for name, test := range map[string]struct {
		target        runtime.Target
		want, failure string
	}{
		"default":                      {target: runtime.Target{PodIP: "10.1.2.3"}, want: "10.1.2.3:49983"},
		"IPv6":                         {target: runtime.Target{PodIP: "fd00::1"}, want: "[fd00::1]:49983"},
		"a mapped address":             {target: runtime.Target{PodIP: "::ffff:10.1.2.3"}, want: "10.1.2.3:49983"},
		"URL with another port":        {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3:8080/x"}, want: "10.1.2.3:8080"},
		"URL without port":             {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3"}, want: "10.1.2.3:80"},
		"IPv6 URL":                     {target: runtime.Target{PodIP: "fd00::1", URL: "http://[fd00:0::1]:8080"}, want: "[fd00::1]:8080"},
		"TLS":                          {target: runtime.Target{PodIP: "10.1.2.3", TLSPort: "49984"}, want: "10.1.2.3:49984"},
		"TLS goes before a URL":        {target: runtime.Target{PodIP: "10.1.2.3", TLSPort: "49984", URL: "http://10.9.9.9"}, want: "10.1.2.3:49984"},
		"no address":                   {target: runtime.Target{}, failure: "has no pod address"},
		"no IP":                        {target: runtime.Target{PodIP: "localhost"}, failure: "not an IP address"},
		"zone":                         {target: runtime.Target{PodIP: "fe80::1%eth0"}, failure: "not an IP address"},
		"metadata of a cloud":          {target: runtime.Target{PodIP: "169.254.169.254"}, failure: "not the address of a pod"},
		"unspecified":                  {target: runtime.Target{PodIP: "0.0.0.0"}, failure: "not the address of a pod"},
		"unspecified IPv6":             {target: runtime.Target{PodIP: "::"}, failure: "not the address of a pod"},
		"multicast":                    {target: runtime.Target{PodIP: "224.0.0.1"}, failure: "not the address of a pod"},
		"URL of another pod":           {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.4:49983"}, failure: "must be the sandbox's own pod IP, 10.1.2.3"},
		"URL of a service":             {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://kubernetes.default.svc"}, failure: "must be the sandbox's own pod IP"},
		"URL with the IP as user":      {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3:1@10.1.2.4"}, failure: "without user"},
		"URL with the IP in a name":    {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3.example.com"}, failure: "must be the sandbox's own pod IP"},
		"URL with an octal IP":         {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://012.1.2.3"}, failure: "must be the sandbox's own pod IP"},
		"https URL":                    {target: runtime.Target{PodIP: "10.1.2.3", URL: "https://10.1.2.3"}, failure: "has a TLS port instead"},
		"file URL":                     {target: runtime.Target{PodIP: "10.1.2.3", URL: "file:///etc/passwd"}, failure: "must be http://"},
		"no URL":                       {target: runtime.Target{PodIP: "10.1.2.3", URL: "10.1.2.3:49983"}, failure: "URL"},
		"URL with a query":             {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3/?a=b"}, failure: "without user, query"},
		"URL with the port 0":          {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3:0"}, failure: "from 1 to 65535"},
		"URL with a port out of range": {target: runtime.Target{PodIP: "10.1.2.3", URL: "http://10.1.2.3:65536"}, failure: "from 1 to 65535"},
		"TLS port that is none":        {target: runtime.Target{PodIP: "10.1.2.3", TLSPort: "1@10.1.2.4:80"}, failure: "from 1 to 65535"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.target.Address()
			switch {
			case test.failure == "" && err != nil:
				t.Errorf("got %v", err)
			case test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)):
				t.Errorf("got %q, %v; want an error with %q", got, err, test.failure)
			case got != test.want:
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestForeignAddressesAreNotCalled(t *testing.T) {
	fleet := runtimetest.Start(t)
	own, foreign := fleet.Next(), fleet.Next()
	at := target(own)
	at.URL = foreign.URL()
	if err := runtime.New(patient).Init(t.Context(), at, request); err == nil || runtime.IsUnreachable(err) {
		t.Errorf("got %v", err)
	}
	if len(foreign.Calls())+len(own.Calls()) != 0 {
		t.Error("a runtime was called")
	}
}

func TestAURLsPathIsKept(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	rt.Act(runtimetest.Answer(204), 1)
	at := target(rt)
	at.URL = rt.URL() + "/base/"
	if err := runtime.New(patient).Init(t.Context(), at, request); err != nil {
		t.Fatal(err)
	}
	if got := rt.Calls()[0].Path; got != "/base/init" {
		t.Errorf("the path was %s", got)
	}
}
