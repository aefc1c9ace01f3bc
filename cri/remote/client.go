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

// Options are the settings of a [Client]. The zero value is right for production.
type Options struct {
	ImageEndpoint string        // of the image service; empty: the endpoint of the runtime
	Timeout       time.Duration // of a call; zero: 2 minutes
	// Timeouts replaces the time limit of single calls, by the name of the CRI call, such as "PullImage" or
	// "ListContainers". Zero is no limit. StopContainer gets its grace period and ExecSync its timeout on top.
	Timeouts map[string]time.Duration
	// CallReturned is told of each call that has ended, by its CRI name, with how long it took; of GetContainerEvents, how long it took
	// to open the stream. It is called from several goroutines at once and must not block. Nil: nobody is told.
	CallReturned func(method string, took time.Duration, err error)
}

// Client talks to one container runtime. All methods may be called from many goroutines at once.
type Client struct {
	runtime v1.RuntimeServiceClient
	images  v1.ImageServiceClient

	conn      *conn
	imageConn *conn // conn itself where there is one endpoint
	timeout   time.Duration
	timeouts  map[string]time.Duration
	called    func(method string, took time.Duration, err error) // may be nil

	receiving   chan struct{} // has an element for each answer that is received by execInTurn
	mislabelled mislabelled   // as of the last List
}

// A client is every interface of package cri but SessionRunner: the runtime serves sessions itself, as a Streamer.
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

// defaultTimeout is the kubelet's runtimeRequestTimeout.
const defaultTimeout = 2 * time.Minute

// Dial returns a client of the runtime at endpoint, "unix:///path" or an absolute path. It does not connect:
// that happens with the first call, of which [Client.Check] is the cheapest. An error says that the endpoint or
// the options cannot be right.
func Dial(endpoint string, o Options) (*Client, error) {
	if o.Timeout < 0 {
		return nil, fmt.Errorf("dial runtime: timeout %v: negative", o.Timeout)
	}
	for call, d := range o.Timeouts {
		if !isCall(call) {
			return nil, fmt.Errorf("dial runtime: timeout of %q: no such CRI call", call)
		}
		if d < 0 {
			return nil, fmt.Errorf("dial runtime: timeout of %s %v: negative", call, d)
		}
	}
	c := &Client{timeout: cmp.Or(o.Timeout, defaultTimeout), timeouts: maps.Clone(o.Timeouts), called: o.CallReturned, receiving: make(chan struct{}, maxReceiving)}
	var err error
	if c.conn, err = newConn(endpoint); err != nil {
		return nil, fmt.Errorf("dial runtime: %w", err)
	}
	c.imageConn = c.conn
	if o.ImageEndpoint != "" && o.ImageEndpoint != endpoint {
		if c.imageConn, err = newConn(o.ImageEndpoint); err != nil {
			return nil, errors.Join(fmt.Errorf("dial image service: %w", err), c.conn.Close())
		}
	}
	c.runtime = v1.NewRuntimeServiceClient(c.conn)
	c.images = v1.NewImageServiceClient(c.imageConn)
	return c, nil
}

// Close ends the connection. Calls in flight fail.
func (c *Client) Close() error {
	err := c.conn.Close()
	if c.imageConn != c.conn {
		err = errors.Join(err, c.imageConn.Close())
	}
	return err
}

// isCall reports whether the CRI has a unary call of this name.
func isCall(name string) bool {
	named := func(m grpc.MethodDesc) bool { return m.MethodName == name }
	return slices.ContainsFunc(v1.RuntimeService_ServiceDesc.Methods, named) ||
		slices.ContainsFunc(v1.ImageService_ServiceDesc.Methods, named)
}

const (
	// apiVersion is the version of the kubelet runtime API that the kubelet insists on.
	apiVersion = "0.1.0"
	// checkTimeout lets Check outlast one full attempt to connect.
	checkTimeout = 10 * time.Second
)

// Check asks the runtime who it is and returns within seconds. The error says what to look at when nobody
// listens on the socket, or somebody who is not a CRI v1 runtime.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return c.conn.notCRI(err)
	}
	if v.Version != apiVersion {
		return fmt.Errorf("socket %s: kubelet runtime API %q of %s %s: want %q",
			c.conn.path, v.Version, v.RuntimeName, v.RuntimeVersion, apiVersion)
	}
	if c.imageConn == c.conn {
		return nil
	}
	if _, err := c.ImageUsage(ctx); err != nil {
		return c.imageConn.notCRI(err)
	}
	return nil
}

// Version returns who the runtime is.
func (c *Client) Version(ctx context.Context) (cri.Version, error) {
	o := op{name: "Version"}
	r, err := call(ctx, c, o, c.runtime.Version, &v1.VersionRequest{Version: apiVersion})
	if err != nil {
		return cri.Version{}, err
	}
	v := cripb.DecodeVersion(r)
	return v, o.require(
		field{"version", v.Version != ""},
		field{"runtime_name", v.RuntimeName != ""},
		field{"runtime_version", v.RuntimeVersion != ""},
		field{"runtime_api_version", v.RuntimeAPIVersion != ""},
	)
}

// Status returns the runtime's conditions and features.
func (c *Client) Status(ctx context.Context) (cri.Status, error) {
	o := op{name: "Status"}
	r, err := call(ctx, c, o, c.runtime.Status, &v1.StatusRequest{})
	if err != nil {
		return cri.Status{}, err
	}
	// The protocol asks for RuntimeReady and NetworkReady at least.
	return cripb.DecodeStatus(r), o.require(field{"status.conditions", len(r.GetStatus().GetConditions()) >= 2})
}

// CgroupDriver returns the driver that the runtime wants pod cgroups named for.
func (c *Client) CgroupDriver(ctx context.Context) (cri.CgroupDriver, error) {
	o := op{name: "RuntimeConfig"}
	r, err := call(ctx, c, o, c.runtime.RuntimeConfig, &v1.RuntimeConfigRequest{})
	if err != nil {
		return 0, err
	}
	return cripb.DecodeCgroupDriver(r), o.require(field{"linux", r.GetLinux() != nil})
}

// SetPodCIDRs tells the runtime the addresses of the node's pods. One whose network has a configuration of its own, as
// containerd has, takes no notice.
func (c *Client) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	all := make([]string, len(cidrs))
	for i, cidr := range cidrs {
		all[i] = cidr.String()
	}
	o := op{name: "UpdateRuntimeConfig"}
	_, err := call(ctx, c, o, c.runtime.UpdateRuntimeConfig, &v1.UpdateRuntimeConfigRequest{
		RuntimeConfig: &v1.RuntimeConfig{NetworkConfig: &v1.NetworkConfig{PodCidr: strings.Join(all, ",")}},
	})
	return err
}
