// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// maxProxied is how many requests a server forwards to sandboxes at a time, and
// maxProxiedOfUser how many of one user. A namespace gets no more than it leaves free for
// others, regardless of who asks for its sandboxes.
const (
	maxProxied       = 1000
	maxProxiedOfUser = 200
	// maxProxyReads is how many sandboxes are read for that at a time: each may take some MiB. A namespace
	// has at most what it leaves free for others.
	maxProxyReads = 128
)

// ProxyREST forwards requests to the ports of sandboxes, from
// sandboxes/<name>/proxy/<port>/<path>. The right to is one of its own. What the cluster
// knows its users by never reaches a sandbox.
type ProxyREST struct {
	// Connections are those to sandboxes. They end by the changes that are reported to it.
	Connections *sandboxproxy.Connections

	sandboxes *genericregistry.Store
	addresses *podaddress.Verifier
	proxy     *sandboxproxy.Proxy
	// users and namespaces are the places of requests.
	users, namespaces *fairness.Slots
	// reads are the slots of reads of sandboxes, by namespace.
	reads *fairness.Slots
}

var _ rest.Connecter = &ProxyREST{}

// NewProxyREST returns the proxy to the sandboxes of a store. Their addresses are verified before
// each connection.
func NewProxyREST(sandboxes *genericregistry.Store, addresses *podaddress.Verifier) *ProxyREST {
	r := &ProxyREST{
		Connections: sandboxproxy.NewConnections(), sandboxes: sandboxes, addresses: addresses,
		// The places of all users are bounded by those of namespaces.
		users: fairness.NewSlots(3*maxProxied, maxProxiedOfUser), namespaces: fairness.NewSlots(maxProxied, maxProxied),
		reads: fairness.NewSlots(maxProxyReads, maxProxyReads),
	}
	r.proxy = sandboxproxy.New(sandboxproxy.Options{Resolve: r.resolve, Error: tell, Connections: r.Connections})
	return r
}

// New returns the object of which this is a part.
func (*ProxyREST) New() runtime.Object { return &v1alpha1.Sandbox{} }

// Destroy ends what connections are left idle.
func (r *ProxyREST) Destroy() { r.proxy.Close() }

// NewConnectOptions returns no options: what follows the port is the sandbox's.
func (*ProxyREST) NewConnectOptions() (options runtime.Object, includeSubpath bool, param string) {
	return nil, true, ""
}

// ConnectMethods returns the methods that are forwarded, each by the right to its verb.
func (*ProxyREST) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
}

// Connect returns what forwards a request to the sandbox of a name.
func (r *ProxyREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("there is no information about the request"))
	}
	user := ""
	if who, ok := genericapirequest.UserFrom(ctx); ok {
		user = who.GetName()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		port, path, err := beyond(req.URL.EscapedPath(), info)
		if err != nil {
			responder.Error(apierrors.NewBadRequest(err.Error()))
			return
		}
		// These requests are long-running, so nothing else limits how many there are.
		leave, err := r.enter(user, info.Namespace)
		if err != nil {
			responder.Error(err)
			return
		}
		defer leave()
		target, err := r.target(req.Context(), info.Namespace, name, port)
		if err != nil {
			responder.Error(err)
			return
		}
		next := req.Clone(context.WithValue(req.Context(), responderKey{}, answerer{responder, name}))
		if next.URL, err = url.Parse(path); err != nil {
			responder.Error(apierrors.NewBadRequest(err.Error()))
			return
		}
		next.URL.RawQuery = req.URL.RawQuery
		dropCredentials(next.Header)
		r.proxy.Forward(sandboxproxy.IsolateResponse(w), next, target)
	}), nil
}

// target returns the port of the sandbox of a name, or an error if it cannot be reached now. It keeps
// nothing else of the sandbox, which may be large: the request may last for hours.
func (r *ProxyREST) target(ctx context.Context, namespace, name string, port int) (sandboxproxy.Target, error) {
	release, err := r.reads.Wait(ctx, namespace)
	if err != nil {
		return sandboxproxy.Target{}, err
	}
	defer release()
	sb, err := r.get(ctx, namespace, name)
	if err != nil {
		return sandboxproxy.Target{}, err
	}
	if _, err := addressOf(sb); err != nil {
		return sandboxproxy.Target{}, unavailable(name, err)
	}
	if v1alpha1.IsClosedRuntimePort(sb, port) { // also over a connection that is kept
		return sandboxproxy.Target{}, unavailable(name, sandboxproxy.ErrRuntimeNotSetUp)
	}
	return sandboxproxy.Target{Namespace: sb.Namespace, Name: sb.Name, UID: sb.UID, Port: port}, nil
}

// enter takes the places of a request.
func (r *ProxyREST) enter(user, namespace string) (leave func(), err error) {
	leaveNamespace, ok := r.namespaces.Take(namespace)
	if !ok {
		return nil, apierrors.NewTooManyRequests("too many requests are forwarded to sandboxes of namespace "+namespace, 1)
	}
	leaveUser, ok := r.users.Take(user)
	if !ok {
		leaveNamespace()
		return nil, apierrors.NewTooManyRequests("too many requests of this user are forwarded to sandboxes", 1)
	}
	return func() { leaveUser(); leaveNamespace() }, nil
}

// get returns a sandbox as it is stored now.
func (r *ProxyREST) get(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error) {
	obj, err := r.sandboxes.Get(genericapirequest.WithNamespace(ctx, namespace), name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	sb, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return nil, fmt.Errorf("%T is not a Sandbox", obj)
	}
	return sb, nil
}

// resolve finds out where a sandbox is, before each connection to it.
func (r *ProxyREST) resolve(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error) {
	address, part, err := r.read(ctx, target)
	if err != nil {
		return sandboxproxy.Address{}, err
	}
	if err := r.addresses.Verify(ctx, part); errors.Is(err, podaddress.ErrStale) {
		return sandboxproxy.Address{}, fmt.Errorf("%w: %w", sandboxproxy.ErrNotRunning, err)
	} else if err != nil {
		return sandboxproxy.Address{}, err
	}
	return address, nil
}

// read reads a sandbox from the store. It returns its address, and what is needed to verify that.
func (r *ProxyREST) read(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, *v1alpha1.Sandbox, error) {
	release, err := r.reads.Wait(ctx, target.Namespace)
	if err != nil {
		return sandboxproxy.Address{}, nil, err
	}
	defer release()
	sb, err := r.get(ctx, target.Namespace, target.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && sb.UID != target.UID:
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: it is gone", sandboxproxy.ErrNotRunning)
	case err != nil:
		return sandboxproxy.Address{}, nil, err
	}
	address, err := addressOf(sb)
	if err != nil {
		return sandboxproxy.Address{}, nil, err
	}
	if v1alpha1.IsClosedRuntimePort(sb, target.Port) {
		return sandboxproxy.Address{}, nil, sandboxproxy.ErrRuntimeNotSetUp
	}
	return sandboxproxy.AddressOf(sb, address, target.Port), podaddress.PartOf(sb), nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// addressOf returns the address of a sandbox that can be used.
func addressOf(sb *v1alpha1.Sandbox) (netip.Addr, error) {
	switch state := v1alpha1.StateOf(sb, clock.RealClock{}.Now()); state {
	case v1alpha1.StateRunning, v1alpha1.StateAvailable:
	default:
		return netip.Addr{}, fmt.Errorf("%w: it is %s", sandboxproxy.ErrNotRunning, state)
	}
	ip, err := netip.ParseAddr(sb.Status.PodInfo.PodIP)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%w: it has no address", sandboxproxy.ErrNotRunning)
	}
	if ip = ip.Unmap(); ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip == broadcast {
		return netip.Addr{}, fmt.Errorf("%w: %s is not the address of a pod", sandboxproxy.ErrNotRunning, ip)
	}
	return ip, nil
}

// beyond returns the port and the path that follow "proxy" in the path of a request.
func beyond(escaped string, info *genericapirequest.RequestInfo) (port int, path string, err error) {
	prefix := "/" + strings.Join([]string{
		info.APIPrefix, info.APIGroup, info.APIVersion, "namespaces", info.Namespace, info.Resource, info.Name, info.Subresource,
	}, "/")
	const how = "write proxy/<port>/<path>, such as proxy/8080/index.html"
	rest, ok := strings.CutPrefix(escaped, prefix)
	if !ok {
		return 0, "", fmt.Errorf("the path must begin with %s: %s", prefix, how)
	}
	rest, ok = strings.CutPrefix(rest, "/")
	if !ok {
		return 0, "", fmt.Errorf("the port is missing: %s", how)
	}
	number, path, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || number[0] == '0' {
		return 0, "", fmt.Errorf("the port must be from 1 to 65535, not %q: %s", number[:min(len(number), 32)], how)
	}
	// Not a URL of its own, whatever the path begins with.
	return int(n), "/" + strings.TrimLeft(path, "/"), nil
}

// credentials are headers by which the cluster knows its users.
var credentials = []string{"Authorization", "Cookie"}

// dropCredentials removes what a sandbox could use in the name of who asks.
func dropCredentials(header http.Header) {
	for key := range header {
		if slices.Contains(credentials, key) || strings.HasPrefix(key, "X-Remote-") || strings.HasPrefix(key, "Impersonate-") {
			header.Del(key)
		}
	}
	// Browsers have no other header to put a token in.
	const protocols = "Sec-Websocket-Protocol"
	offered := header.Values(protocols)
	header.Del(protocols)
	for _, line := range offered {
		kept := slices.DeleteFunc(strings.Split(line, ","), func(protocol string) bool {
			return strings.HasPrefix(strings.TrimSpace(protocol), tokenProtocol)
		})
		if len(kept) > 0 {
			header.Add(protocols, strings.Join(kept, ","))
		}
	}
}

// tokenProtocol begins the subprotocol of a WebSocket that is a token for kube-apiserver.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

type responderKey struct{}

// answerer answers errors of a request to a sandbox.
type answerer struct {
	rest.Responder
	name string
}

// tell answers a request that did not get through.
func tell(_ http.ResponseWriter, req *http.Request, err error) {
	a, ok := req.Context().Value(responderKey{}).(answerer)
	if !ok || req.Context().Err() != nil {
		return // the client is gone
	}
	a.Error(unavailable(a.name, err))
}

func unavailable(name string, err error) error {
	e := apierrors.NewServiceUnavailable(fmt.Sprintf("sandbox %s cannot be reached: %v", name, err))
	if !errors.Is(err, sandboxproxy.ErrNotRunning) && !errors.Is(err, podaddress.ErrUnavailable) {
		e.ErrStatus.Code = http.StatusBadGateway
	}
	e.ErrStatus.Details = &metav1.StatusDetails{Group: v1alpha1.GroupName, Kind: "sandboxes", Name: name, RetryAfterSeconds: 1}
	return e
}
