// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// Options configures a [Client]. The zero value is ready for production.
type Options struct {
	ImageEndpoint string        // endpoint of the image service; empty: the runtime's endpoint
	Timeout       time.Duration // time limit of a call; zero: 2 minutes
	// Timeouts overrides the time limit of calls, by CRI name such as "PullImage" or "ListContainers". Zero means no limit. The
	// grace period of StopContainer and the timeout of ExecSync are added to their limits.
	Timeouts map[string]time.Duration
	// CallReturned is called after each call, with its CRI name, duration and error. For GetContainerEvents the duration is the
	// time to open the stream. It is called concurrently and must not block. May be nil.
	CallReturned func(method string, took time.Duration, err error)
}

// Client is a client of one container runtime. All methods may be called concurrently.
type Client struct {
	runtime v1.RuntimeServiceClient
	images  v1.ImageServiceClient

	conn         *conn
	imageConn    *conn // equal to conn if both services have one endpoint
	timeout      time.Duration
	timeouts     map[string]time.Duration
	callReturned func(method string, took time.Duration, err error) // Options.CallReturned; may be nil

	receiveSlots chan struct{} // has an element per response being received by execWithSlot
	mislabelled  mislabelled   // pods whose objects lack their UID label, as of the last List
}

// A Client implements every interface of package cri except SessionRunner: runtimes serve sessions themselves, as a Streamer.
var (
	_ cri.Runtime        = (*Client)(nil)
	_ cri.Images         = (*Client)(nil)
	_ cri.Puller         = (*Client)(nil)
	_ cri.Inspector      = (*Client)(nil)
	_ cri.PodLister      = (*Client)(nil)
	_ cri.EventStreamer  = (*Client)(nil)
	_ cri.Execer         = (*Client)(nil)
	_ cri.Streamer       = (*Client)(nil)
	_ cri.LogReopener    = (*Client)(nil)
	_ cri.Updater        = (*Client)(nil)
	_ cri.StatsLister    = (*Client)(nil)
	_ cri.PodStatsLister = (*Client)(nil)
	_ cri.MetricsLister  = (*Client)(nil)
	_ cri.StatusReporter = (*Client)(nil)
	_ cri.Checkpointer   = (*Client)(nil)
	_ cri.PodCIDRSetter  = (*Client)(nil)
)

// defaultTimeout is the default of the kubelet's runtimeRequestTimeout.
const defaultTimeout = 2 * time.Minute

// Dial returns a client of the runtime at this endpoint: "unix:///path" or an absolute path. It does not connect: the first
// call does, for example [Client.Check]. An error names the invalid endpoint or option.
func Dial(endpoint string, opts Options) (*Client, error) {
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("dial runtime: timeout %v: negative", opts.Timeout)
	}
	for call, d := range opts.Timeouts {
		if !isCall(call) {
			return nil, fmt.Errorf("dial runtime: timeout of %q: no such CRI call", call)
		}
		if d < 0 {
			return nil, fmt.Errorf("dial runtime: timeout of %s %v: negative", call, d)
		}
	}
	c := &Client{timeout: cmp.Or(opts.Timeout, defaultTimeout), timeouts: maps.Clone(opts.Timeouts), callReturned: opts.CallReturned, receiveSlots: make(chan struct{}, maxReceiving)}
	var err error
	if c.conn, err = newConn(endpoint); err != nil {
		return nil, fmt.Errorf("dial runtime: %w", err)
	}
	c.imageConn = c.conn
	if opts.ImageEndpoint != "" && opts.ImageEndpoint != endpoint {
		if c.imageConn, err = newConn(opts.ImageEndpoint); err != nil {
			return nil, errors.Join(fmt.Errorf("dial image service: %w", err), c.conn.Close())
		}
	}
	c.runtime = v1.NewRuntimeServiceClient(c.conn)
	c.images = v1.NewImageServiceClient(c.imageConn)
	return c, nil
}

// Close closes the connections to the runtime. Calls in progress fail.
func (c *Client) Close() error {
	err := c.conn.Close()
	if c.imageConn != c.conn {
		err = errors.Join(err, c.imageConn.Close())
	}
	return err
}

// isCall reports whether name is a CRI call with one request and one response.
func isCall(name string) bool {
	named := func(m grpc.MethodDesc) bool { return m.MethodName == name }
	return slices.ContainsFunc(v1.RuntimeService_ServiceDesc.Methods, named) ||
		slices.ContainsFunc(v1.ImageService_ServiceDesc.Methods, named)
}

const (
	// apiVersion is the kubelet runtime API version that the kubelet requires.
	apiVersion = "0.1.0"
	// checkTimeout is the timeout of Check, longer than one full attempt to connect.
	checkTimeout = 10 * time.Second
)

// Check returns nil if a CRI v1 runtime serves the socket, else an error within 10 s. If no program listens on the socket,
// or the program is no CRI v1 runtime, the error contains advice.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return c.conn.explainCallError(err)
	}
	if v.Version != apiVersion {
		return fmt.Errorf("socket %s: kubelet runtime API %q of %s %s: want %q",
			c.conn.path, v.Version, v.RuntimeName, v.RuntimeVersion, apiVersion)
	}
	if c.imageConn == c.conn {
		return nil
	}
	if _, err := c.ImageUsage(ctx); err != nil {
		return c.imageConn.explainCallError(err)
	}
	return nil
}

// Version returns the name and the versions of the runtime.
func (c *Client) Version(ctx context.Context) (cri.Version, error) {
	o := callInfo{name: "Version"}
	r, err := invoke(ctx, c, o, c.runtime.Version, &v1.VersionRequest{Version: apiVersion})
	if err != nil {
		return cri.Version{}, err
	}
	v := cripb.DecodeVersion(r)
	return v, o.requireFields(
		requiredField{"version", v.Version != ""},
		requiredField{"runtime_name", v.RuntimeName != ""},
		requiredField{"runtime_version", v.RuntimeVersion != ""},
		requiredField{"runtime_api_version", v.RuntimeAPIVersion != ""},
	)
}

// Status returns the runtime's conditions and features.
func (c *Client) Status(ctx context.Context) (cri.Status, error) {
	o := callInfo{name: "Status"}
	r, err := invoke(ctx, c, o, c.runtime.Status, &v1.StatusRequest{})
	if err != nil {
		return cri.Status{}, err
	}
	// The protocol requires at least RuntimeReady and NetworkReady.
	return cripb.DecodeStatus(r), o.requireFields(requiredField{"status.conditions", len(r.GetStatus().GetConditions()) >= 2})
}

// CgroupDriver returns the runtime's cgroup driver, which determines the form of cgroup names. For a runtime that does not report it, the error
// wraps [errors.ErrUnsupported].
func (c *Client) CgroupDriver(ctx context.Context) (cri.CgroupDriver, error) {
	o := callInfo{name: "RuntimeConfig"}
	r, err := invoke(ctx, c, o, c.runtime.RuntimeConfig, &v1.RuntimeConfigRequest{})
	if err != nil {
		return 0, err
	}
	if err := o.requireFields(requiredField{"linux", r.GetLinux() != nil}); err != nil {
		return 0, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return cripb.DecodeCgroupDriver(r), nil
}

// SetPodCIDRs sends the pod CIDRs of the node to the runtime. A runtime with its own CNI configuration, such as containerd,
// ignores them.
func (c *Client) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	all := make([]string, len(cidrs))
	for i, cidr := range cidrs {
		all[i] = cidr.String()
	}
	o := callInfo{name: "UpdateRuntimeConfig"}
	_, err := invoke(ctx, c, o, c.runtime.UpdateRuntimeConfig, &v1.UpdateRuntimeConfigRequest{
		RuntimeConfig: &v1.RuntimeConfig{NetworkConfig: &v1.NetworkConfig{PodCidr: strings.Join(all, ",")}},
	})
	return err
}
